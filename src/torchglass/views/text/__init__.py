"""Turns rows into text: words, columns and colours."""
