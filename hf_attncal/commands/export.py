"""`attncal export`: a saved model as a graph that runs without PyTorch, or as what CTranslate2 translates with."""

from typing import TYPE_CHECKING, Literal

from hf_attncal.io.errors import user_errors
from hf_attncal.io.messages import without_chatter

from .kinds import Model

if TYPE_CHECKING:
    from hf_attncal.hub.export import Exported


def export(
    folder: Model, /, *, format: Literal["onnx", "openvino", "ctranslate2", "ctranslate2-int8"] = "onnx"
) -> "Exported":
    """Write a model as a graph that runs without PyTorch.

    Write model.onnx or openvino_model.xml, with its weights, into the folder of a saved model or aligner, and how to
    run it into its card. The graph is tried against PyTorch first. Recurrent models, and aligners with jumps, have no
    graph for all lengths. A Marian or BART without calibration goes to CTranslate2, which translates on a CPU several
    times as fast: `attncal translate FOLDER/ctranslate2`, with the links of its guided head.

    Examples:
        attncal export runs/gated
        attncal export runs/gated --format openvino
        attncal export runs/guided --format ctranslate2-int8

    Args:
        folder: folder of a saved model with its tokenizer
        format: which graph; or the folder `ctranslate2`, in float32 or with matrices in 8 bits

    Returns:
        The path of what was written, and its largest `difference` from PyTorch.

    Raises:
        CommandError: the folder holds no model, or one that has no graph.
    """
    from hf_attncal.inference.opening import check_loadable

    check_loadable(folder)
    from hf_attncal.hub import ExportError, export_graph, export_translator

    write = export_translator if format.startswith("ctranslate2") else export_graph
    with user_errors(ExportError), without_chatter():
        return write(folder, format)
