"""`python -m hf_attncal.cli` is `attncal`."""

import sys

from . import main

if __name__ == "__main__":
    from hf_attncal.interrupts import leave_to_system

    leave_to_system()
    sys.exit(main())
