"""`attncal export`: a saved model as a graph that runs without PyTorch."""

import argparse

from .common import CommandError
from .loading import load_errors


def add_export(commands: argparse._SubParsersAction) -> None:
    """Add the command `export`."""
    parser = commands.add_parser(
        "export",
        help="write a model as a graph that runs without PyTorch",
        description="Write model.onnx or openvino_model.xml, with its weights, into the folder of a saved model or "
        "aligner, and how to run it into its card. The graph is tried against PyTorch first. Recurrent models, and "
        "aligners with jumps, have no graph for all lengths.",
        epilog="examples:\n  attncal export runs/gated\n  attncal export runs/gated --format openvino",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder of a saved model with its tokenizer")
    parser.add_argument("--format", choices=("onnx", "openvino"), default="onnx", help="default: %(default)s")
    parser.set_defaults(run=_run_export)


def _run_export(options: argparse.Namespace) -> None:
    with load_errors(options.folder):  # what is wrong with a name is told before anything heavy is imported
        pass
    from hf_attncal.hub import ExportError, export
    from hf_attncal.hub.export import FORMATS

    try:
        difference = export(options.folder, options.format)
    except ExportError as error:
        raise CommandError(str(error)) from error
    graph = FORMATS[options.format].graph
    print(f"{options.folder}/{graph}: differs from PyTorch by at most {difference:.1e}")
