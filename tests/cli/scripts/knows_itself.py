"""Says what it knows of itself, of its arguments and of its surroundings, and warns."""

import argparse
import sys
import warnings
from pathlib import Path

count: int = 3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--to")
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--show", action="store_true")
    parser.add_argument("rest", nargs="*")
    print(parser.parse_args())
    print(sys.argv, parser.prog)
    print(Path("data.txt").read_text(encoding="utf-8"), sys.stdin.read())
    warnings.warn("shown, because this is the main program", DeprecationWarning, stacklevel=1)


print(__name__, __file__, __spec__, __package__, __cached__, type(__loader__).__name__, type(__builtins__).__name__)
print(__doc__, __annotations__, sys.path[0], sys.flags.optimize, sys.flags.utf8_mode, sys.warnoptions)
print(sorted(name for name in globals() if name.startswith("__")), sys.modules["__main__"].count is count)
assert len(sys.argv) > 1, "arguments are needed"
if __name__ == "__main__":
    main()
