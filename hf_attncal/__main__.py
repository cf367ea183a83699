"""Entry point of `attncal` and `python -m hf_attncal`."""

import gc
import os
import signal
import sys

from hf_attncal.io.interrupts import interrupt, raise_unraisable_again

# Environment variables of the wait policy of GNU OpenMP, which PyTorch uses on Linux.
_WAIT_VARIABLES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
# Spins before an idle thread sleeps. The default of 300,000 takes processor time from other processes. With this
# number a small model trains as fast on an idle machine (docs/log.md).
_SPIN_COUNT = "10000"


def main() -> int:
    """Run the command and return its exit status.

    Ctrl-C prints one line. During imports and after the work it ends the process at once: nothing can be lost, and
    some libraries would turn it into another error.
    """
    spin_briefly()
    raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # False for `attncal ... &` in a script
    sys.unraisablehook = raise_unraisable_again
    try:
        if raised:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from hf_attncal.commands import main as run

        if raised:
            signal.signal(signal.SIGINT, interrupt)
        return run()
    except KeyboardInterrupt:
        print("attncal: interrupted", file=sys.stderr)
        return 130
    finally:
        gc.freeze()  # skips garbage collection at exit, half a second with PyTorch
        if raised:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def spin_briefly() -> None:
    """Make idle threads of PyTorch sleep after a short spin; call before torch is imported.

    A wait policy in the environment has priority.
    """
    if not any(name in os.environ for name in _WAIT_VARIABLES):
        os.environ["GOMP_SPINCOUNT"] = _SPIN_COUNT


if __name__ == "__main__":
    sys.exit(main())
