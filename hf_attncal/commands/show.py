"""`attncal show`: a page on this machine, to type sentences and see what a model makes of them."""

from hf_attncal.inference.opening import check_loadable, fetched
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import at_least

from .kinds import Model


def show(
    model: Model, /, *, aligner: Model | None = None, beams: int = 4, port: int = 0, running: Running = Running()
) -> None:
    """Try a translation model out on a page in the browser.

    Serve a page on this machine and print its address. Type sentences and see their translations and, word by word,
    what attention and methods of attribution say of them; take source words away and see what changes; and write the
    page of `attncal analyze` for them. The address holds a token: nobody else can open it. Ctrl-C ends it.

    Examples:
        attncal show MODEL
        attncal show MODEL --aligner ALIGNER --port 8000

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter
        aligner: word aligner that draws links, and marks what was left out or made up if `attncal check` has learned
            that for it; without it, neither
        beams: beam size
        port: port on 127.0.0.1; 0 takes any that is free
        running: how the models run

    Returns:
        None, when Ctrl-C ends it.

    Raises:
        CommandError: a model cannot be loaded, or the port cannot be used.
    """
    at_least("--beams", beams, 1)
    at_least("--port", port, 0, 65535)
    model = fetched(model, running)
    check_loadable(model, aligner)
    from hf_attncal.report.live import open_live_model
    from hf_attncal.report.live_server import LiveServer

    LiveServer.serve(open_live_model(model, running, None if aligner is None else str(aligner), beams), port)
