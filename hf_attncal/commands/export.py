"""`attncal export`: a saved model as what CTranslate2 translates with."""

from typing import TYPE_CHECKING, Literal

from hf_attncal.io.errors import user_errors
from hf_attncal.io.messages import without_chatter

from .kinds import Model

if TYPE_CHECKING:
    from hf_attncal.hub.translator_export import Exported


def export(folder: Model, /, *, format: Literal["ctranslate2", "ctranslate2-int8"] = "ctranslate2") -> "Exported":
    """Write a model for CTranslate2, which translates on a CPU several times as fast as PyTorch.

    The model is a Marian or BART without calibration. What is written is tried against PyTorch first. It is used as
    `attncal translate FOLDER/ctranslate2`, with the links of its guided head.

    Examples:
        attncal export runs/guided
        attncal export runs/guided --format ctranslate2-int8

    Args:
        folder: folder of a saved model with its tokenizer
        format: in float32, or with matrices in 8 bits

    Returns:
        The path of what was written, and its largest `difference` from PyTorch.

    Raises:
        CommandError: the folder holds no model, or one that CTranslate2 cannot run.
    """
    from hf_attncal.inference.opening import check_loadable

    check_loadable(folder)
    from hf_attncal.hub.translator_export import ExportError, export_translator

    with user_errors(ExportError), without_chatter():
        return export_translator(folder, format)
