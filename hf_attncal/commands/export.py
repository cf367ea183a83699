"""`attncal export`: export a saved model to CTranslate2."""

from typing import TYPE_CHECKING, Literal

from hf_attncal.io.errors import user_errors
from hf_attncal.io.messages import silenced_libraries

from .kinds import Model

if TYPE_CHECKING:
    from hf_attncal.hub.translator_export import Exported


def export(folder: Model, /, *, format: Literal["ctranslate2", "ctranslate2-int8"] = "ctranslate2") -> "Exported":
    """Export a model to CTranslate2, which translates on a CPU several times as fast as PyTorch.

    The model must be a Marian or BART without calibration. The export is first compared with PyTorch. Use it as
    `attncal translate FOLDER/ctranslate2`; the links of its guided head are kept.

    Examples:
        attncal export runs/guided
        attncal export runs/guided --format ctranslate2-int8

        >>> hf_attncal.export("runs/guided", format="ctranslate2-int8").difference

    Args:
        folder: folder of a saved model with its tokenizer
        format: ctranslate2: weights in float32; ctranslate2-int8: matrices in 8 bits

    Returns:
        The path of the export, and its largest `difference` from PyTorch.

    Raises:
        CommandError: the folder holds no model, or one that CTranslate2 cannot run.
    """
    from hf_attncal.inference.opening import check_loadable

    check_loadable(folder)
    from hf_attncal.hub.translator_export import ExportError, export_translator

    with user_errors(ExportError), silenced_libraries():
        return export_translator(folder, format)
