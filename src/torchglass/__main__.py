"""Makes `python -m torchglass` the same as the command `torchglass`."""

import sys

from torchglass.cli import main

if __name__ == "__main__":
    sys.exit(main())
