"""`python -m hf_attncal` is `attncal`; this is what the installed command calls."""

import _thread
import gc
import signal
import sys
import threading

from hf_attncal.threads import spin_briefly


def main() -> int:
    """Run the command and return its exit status.

    Ctrl-C is one line. While the command is imported, and after its work, nothing can be lost: there Ctrl-C ends the
    process at once, as some libraries turn it into another error.
    """
    spin_briefly()
    raised = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not of `attncal ... &` in a script
    sys.unraisablehook = _raise_again
    try:
        if raised:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        from hf_attncal.commands import main as run

        if raised:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        return run()
    except KeyboardInterrupt:
        print("attncal: interrupted", file=sys.stderr)
        return 130
    finally:
        gc.freeze()  # the end of the process needs no search for garbage, half a second with PyTorch
        if raised:
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _raise_again(unraisable) -> None:
    """Raise Ctrl-C again that came in a destructor or a callback: Python would print a traceback and go on.

    A moment later, as Python would drop one that is raised in here, too.
    """
    if issubclass(unraisable.exc_type, KeyboardInterrupt):
        threading.Timer(0.05, _thread.interrupt_main).start()
    else:
        sys.__unraisablehook__(unraisable)


if __name__ == "__main__":
    sys.exit(main())
