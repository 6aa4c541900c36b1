"""Says what it knows of itself, and fails."""

import sys

from package import TOTAL

print(__name__, __file__, __spec__.name, __package__, sys.argv, sys.path[0], TOTAL)
raise ValueError("of the package")
