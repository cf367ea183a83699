"""`python -m hf_attncal` is `attncal`; this is what the installed command calls."""

import signal
import sys


def main() -> int:
    """Run the command and return its exit status.

    Before and after its work, while Python imports and clears up, Ctrl-C ends the process without a word.
    """
    listening = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # a shell's `attncal ... &` does not
    if listening:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from hf_attncal.cli import main as run

    try:
        if listening:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        if listening:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    sys.exit(main())
