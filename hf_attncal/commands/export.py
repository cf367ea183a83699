"""`attncal export`: a saved model as a graph that runs without PyTorch."""

from typing import TYPE_CHECKING, Literal

from hf_attncal.errors import user_errors
from hf_attncal.messages import without_chatter

from .kinds import Model

if TYPE_CHECKING:
    from hf_attncal.hub.export import Exported


def export(folder: Model, /, *, format: Literal["onnx", "openvino"] = "onnx") -> "Exported":
    """Write a model as a graph that runs without PyTorch.

    Write model.onnx or openvino_model.xml, with its weights, into the folder of a saved model or aligner, and how to
    run it into its card. The graph is tried against PyTorch first. Recurrent models, and aligners with jumps, have no
    graph for all lengths.

    Examples:
        attncal export runs/gated
        attncal export runs/gated --format openvino

    Args:
        folder: folder of a saved model with its tokenizer
        format: which graph

    Returns:
        The path of the graph, and its largest `difference` from PyTorch.

    Raises:
        CommandError: the folder holds no model, or one that has no graph.
    """
    from hf_attncal.inference.opening import load_errors

    with load_errors(str(folder)):  # what is wrong with a name is told before anything heavy is imported
        pass
    from hf_attncal.hub import ExportError, export_graph

    with user_errors(ExportError), without_chatter():
        return export_graph(folder, format)
