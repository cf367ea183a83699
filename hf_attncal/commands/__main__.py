"""`python -m hf_attncal.commands` is `attncal`."""

import sys

from . import main

if __name__ == "__main__":
    sys.exit(main())
