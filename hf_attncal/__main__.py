"""`python -m hf_attncal` is `attncal`; this is what the installed command calls."""

import sys

from hf_attncal.threads import spin_briefly


def main() -> int:
    """Run the command and return its exit status; Ctrl-C is a line, also while the command itself is imported."""
    spin_briefly()
    try:
        from hf_attncal.cli import main as run

        return run()
    except KeyboardInterrupt:
        print("attncal: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
