"""`attncal show`: a page on this machine, to type sentences and see what a model makes of them."""

import argparse
from pathlib import Path

from hf_attncal.commands.common import running_of
from hf_attncal.errors import CommandError
from hf_attncal.inference.opening import load_errors

from .common import add_model_options, at_least, positive


def add_show(commands: argparse._SubParsersAction) -> None:
    """Add the command `show`."""
    parser = commands.add_parser(
        "show",
        help="try a translation model out on a page in the browser",
        description="Serve a page on this machine: type sentences, see their translations and, word by word, what "
        "attention and methods of attribution say of them, take source words away and see what changes, and write the "
        "page of `attncal analyze` for them. With an aligner, there are links; if it has learned to check, words that "
        "were left out or made up are marked. The address holds a token; nobody else can open it.",
        epilog="examples:\n  attncal show MODEL\n  attncal show MODEL --aligner ALIGNER --port 8000",
    )
    add_model_options(parser, "folder or Hub name of an encoder-decoder, or of an adapter")
    parser.add_argument(
        "--aligner",
        metavar="NAME",
        help="word aligner for links, and for marks if `attncal check` has learned for it; without it, neither",
    )
    parser.add_argument("--beams", type=positive, default=4, metavar="N", help="beam size (default: %(default)s)")
    parser.add_argument(
        "--port", type=at_least(0, 65535), default=0, metavar="N", help="port on 127.0.0.1; 0: any (default: 0)"
    )
    parser.set_defaults(run=_run_show)


def _run_show(options: argparse.Namespace) -> None:
    from hf_attncal.inference.opening import load_model

    for name in filter(None, (options.model, options.aligner)):
        with load_errors(name):  # what is wrong with a name is told before a model is loaded
            pass
    model, tokenizer = load_model(options.model, running_of(options), getattr(options, "beams", None) or 2)
    aligner = checker = None
    if options.aligner is not None:
        from hf_attncal.alignment.opening import open_aligner
        from hf_attncal.checking.check_model import CHECK_FILE
        from hf_attncal.inference.files import file_beside

        from .check import open_checker

        aligner = open_aligner(options.aligner, running_of(options))
        if file_beside(options.aligner, CHECK_FILE) is not None:
            checker = open_checker(options.aligner, options, aligner)

    from hf_attncal.hub import read_model_card
    from hf_attncal.report.live import LiveModel
    from hf_attncal.report.live_server import LiveServer

    name = read_model_card(options.model).name or Path(options.model).resolve().name
    try:
        server = LiveServer(LiveModel(model, tokenizer, name, checker, options.beams, aligner), options.port)
    except OSError as error:
        raise CommandError(f"--port {options.port} cannot be used: {error.strerror}.") from error
    with server:
        print(f"{server.url}\nCtrl-C ends it.", flush=True)
        server.serve_forever()
