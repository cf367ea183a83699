"""`attncal export`: a saved model as a graph that runs without PyTorch."""

import argparse

from .common import CommandError, load_errors


def add_export(commands: argparse._SubParsersAction) -> None:
    """Add the command `export`."""
    parser = commands.add_parser(
        "export",
        help="write a model as an ONNX graph, which runs without PyTorch",
        description="Write model.onnx into the folder of a saved model or aligner, and how to run it into its card. "
        "The graph is tried against PyTorch first. Recurrent models, and aligners with jumps, have no graph for all "
        "lengths.",
        epilog="examples:\n  attncal export runs/gated",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of a saved model with its tokenizer")
    parser.set_defaults(run=_run_export)


def _run_export(options: argparse.Namespace) -> None:
    with load_errors(options.folder):  # what is wrong with a name is told before anything heavy is imported
        pass
    from hf_attncal.hub import ExportError, export

    try:
        difference = export(options.folder)
    except ExportError as error:
        raise CommandError(str(error)) from error
    print(f"{options.folder}/model.onnx: differs from PyTorch by at most {difference:.1e}")
