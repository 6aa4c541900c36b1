"""Corrects what torch or Python would otherwise do differently because a recording runs."""
