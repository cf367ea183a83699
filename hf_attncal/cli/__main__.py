"""`python -m hf_attncal.cli` is `attncal`."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
