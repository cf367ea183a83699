"""`attncal show`: a page on this machine, to type sentences and see what a model makes of them."""

import argparse
from pathlib import Path

from .common import CommandError, add_model_options, at_least, load_errors, positive


def add_show(commands: argparse._SubParsersAction) -> None:
    """Add the command `show`."""
    parser = commands.add_parser(
        "show",
        help="try a translation model out on a page in the browser",
        description="Serve a page on this machine: type sentences and see their translations, take source words away "
        "and see what changes, and write the page of `attncal analyze` for them. With an aligner that has learned to "
        "check, words that were left out or made up are marked. The address holds a token; nobody else can open it.",
        epilog="examples:\n  attncal show MODEL\n  attncal show MODEL --aligner ALIGNER --port 8000",
    )
    add_model_options(parser, "folder or Hub name of an encoder-decoder, or of an adapter")
    parser.add_argument(
        "--aligner",
        metavar="NAME",
        help="word aligner that `attncal check` has learned for; without it, nothing is checked",
    )
    parser.add_argument("--beams", type=positive, default=4, metavar="N", help="beam size (default: %(default)s)")
    parser.add_argument(
        "--port", type=at_least(0, 65535), default=0, metavar="N", help="port on 127.0.0.1; 0: any (default: 0)"
    )
    parser.set_defaults(run=_run_show)


def _run_show(options: argparse.Namespace) -> None:
    from .generation import load_model

    for name in filter(None, (options.model, options.aligner)):
        with load_errors(name):  # what is wrong with a name is told before a model is loaded
            pass
    model, tokenizer = load_model(options)
    checker = None
    if options.aligner is not None:
        from .check import open_checker

        checker = open_checker(options.aligner, options)

    from hf_attncal.hub import read_model_card
    from hf_attncal.report.live import LiveModel
    from hf_attncal.report.live_server import LiveServer

    name = read_model_card(options.model).name or Path(options.model).resolve().name
    try:
        server = LiveServer(LiveModel(model, tokenizer, name, checker, options.beams), options.port)
    except OSError as error:
        raise CommandError(f"--port {options.port} cannot be used: {error.strerror}.") from error
    with server:
        print(f"{server.url}\nCtrl-C ends it.", flush=True)
        server.serve_forever()
