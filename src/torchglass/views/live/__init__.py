"""Prints lines while the program runs, in the formats of other tools."""
