"""`python -m lipcheck`, or in a clean interpreter, which looks nowhere for packages, `python -I -S src/lipcheck`."""

import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from lipcheck.cli import main

if __name__ == "__main__":
    sys.exit(main())
