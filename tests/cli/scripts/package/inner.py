"""A module of the package."""

import sys

from . import TOTAL  # noqa: TID252 (works only inside of a package)

print(__name__, __file__, __spec__.name, __package__, sys.argv, sys.path[0], TOTAL)
