"""The main program of a folder, or of an archive."""

import sys

import near

print(__name__, __file__, __spec__.name, repr(__package__), sys.argv, sys.path[0], near.NAME)
raise ValueError("of the folder")
