"""`python -m hf_attncal` is `attncal`; this is what the installed command calls."""

import sys

from hf_attncal.interrupts import leave_to_system
from hf_attncal.threads import spin_briefly


def main() -> int:
    """Run the command and return its exit status.

    Before and after its work, while Python imports and clears up, Ctrl-C ends the process without a word.
    """
    leave_to_system()
    spin_briefly()
    from hf_attncal.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
