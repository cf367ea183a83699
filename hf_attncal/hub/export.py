"""Export a saved model as a graph of ONNX or OpenVINO, which runs without PyTorch, by transformers' own exporters."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from hf_attncal.families import FAMILIES
from hf_attncal.io.files import fill_folder
from hf_attncal.io.gate import saving_into
from hf_attncal.layouts import ONNX, OPENVINO

from .cards import write_export_card
from .folder import inspect_folder

if TYPE_CHECKING:
    from torch import Tensor


class GraphFormat(NamedTuple):
    """A format of graphs.

    Args:
        graph: file of the graph; its weights lie beside it.
        packages: packages that an export needs.
        exporter: what names of transformers' exporter begin with.
        runner: how the graph is run when it is tried; the card's example does the same.
        strip: takes out of a graph where it was made: the exporters note lines of code, with their paths.
    """

    graph: str
    packages: tuple[str, ...]
    exporter: str
    runner: dict[str, Any]
    strip: Callable[[Any], None]


def _strip_onnx(program: Any) -> None:
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    ClearMetadataAndDocStringPass()(program)
    program.metadata_props.clear()
    program.doc_string = None
    for graph in program.graphs():
        values = [*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)]
        for value in values:
            value.metadata_props.clear()
            value.doc_string = None


def _strip_openvino(program: Any) -> None:
    info = program.get_rt_info()
    for key in {"conversion_parameters"}.intersection(info.keys()):  # the others say how it runs
        del info[key]


GRAPH_FORMATS = {
    "onnx": GraphFormat(ONNX, ("onnx", "onnxscript", "onnxruntime"), "Onnx", {}, _strip_onnx),
    # On processors that can, OpenVINO computes in bfloat16 unless it is told not to.
    "openvino": GraphFormat(
        OPENVINO,
        ("openvino",),
        "OpenVINO",
        {"device": "cpu", "config": {"INFERENCE_PRECISION_HINT": "f32"}},
        _strip_openvino,
    ),
}
TOLERANCE = 1e-4
# Batch, source and target tokens of the inputs that the graph is traced with, and of those that it is tried with.
_TRACED, _TRIED = (2, 5, 4), ((2, 5, 4), (1, 7, 3), (3, 4, 6))


class ExportError(ValueError):
    """Nothing was exported; the message says why, and what to do."""


class Exported(NamedTuple):
    """A graph that was written: its path, and its largest difference from what PyTorch computes."""

    path: Path
    difference: float

    def __str__(self) -> str:
        return f"{self.path}: differs from PyTorch by at most {self.difference:.1e}"


def export_graph(folder: str | Path, format: Literal["onnx", "openvino"] = "onnx") -> Exported:
    """Write a graph into a saved model's folder, and how to run it on its card.

    The graph is one pass of the model with teacher forcing, for any batch and lengths: logits of an encoder-decoder or
    a language model, attention of an aligner. It is tried against PyTorch on inputs of other sizes first.

    Args:
        folder: folder of a saved model of this package, with its tokenizer.
        format: "onnx" for `model.onnx` and `model.onnx.data`, "openvino" for `openvino_model.xml` and `.bin`.

    Returns:
        Where the graph is, and how far it is from PyTorch.

    Raises:
        ExportError: a package is missing, the model cannot be exported, or its graph computes something else.
    """
    import torch  # a check of a folder needs none

    folder, to = Path(folder), GRAPH_FORMATS[format]
    try:
        found = inspect_folder(folder)
        family = FAMILIES[found.model_type]
        auto, _ = family.auto_and_card(found.architecture)
        model = family.auto_classes[auto].from_pretrained(folder, dtype=torch.float32).eval()
    except Exception as error:  # whatever the libraries raise on a damaged file
        raise ExportError(f"{folder} cannot be loaded as a model of this package: {error}") from error
    try:
        for package in to.packages:  # the runtime too, which is otherwise missed only when the graph is tried
            importlib.import_module(package)
        exporters = importlib.import_module(f"transformers.exporters.exporter_{format}")
        exporter = getattr(exporters, f"{to.exporter}Exporter")()
    except ImportError as error:
        raise ExportError(
            f"an export to {format} needs transformers >= 5.23 and {', '.join(to.packages)}: {error}. "
            f"Install them: pip install {' '.join(to.packages)}"
        ) from error
    fixed = {"use_cache": False} if family.source is None else {}
    try:
        config = getattr(exporters, f"{to.exporter}Config")(dynamic=True)
        exported = exporter.export(model, _inputs(model, *_TRACED) | fixed, config)
        to.strip(exported.program)
        exported.to(**to.runner)
        difference = max(_difference(model, exported, _inputs(model, *sizes), fixed) for sizes in _TRIED)
    except Exception as error:  # whatever the compiler of the graph or its runtime raises
        # OpenVINO's messages begin with lines that only name files of its own source.
        lines = [line for line in str(error).splitlines() if line.strip() and not line.startswith("Exception from")]
        first = lines[0] if lines else type(error).__name__
        raise ExportError(
            f"{folder} cannot be exported ({found.architecture}): {first[:300]}. A model that goes through its tokens "
            "one by one (recurrent, or an aligner with jumps) has no graph for all lengths. Use it with PyTorch."
        ) from error
    if not difference <= TOLERANCE:
        raise ExportError(
            f"{folder} cannot be exported: its graph differs from the model by {difference:.1e}, more than "
            f"{TOLERANCE:.0e}. Use it with PyTorch."
        )
    with saving_into(folder):
        fill_folder(
            folder, lambda staged: exporter.save_program(exported.program, staged / to.graph), last=(to.graph,)
        )
        write_export_card(folder, model.config, format, pairs=family.source is not None)
    return Exported(folder / to.graph, difference)


def _inputs(model, batch: int, source: int, target: int) -> "dict[str, Tensor]":
    """Random tokens, the last of the first source padding."""
    import torch

    generator = torch.Generator().manual_seed(batch)
    ids, others = (
        torch.randint(model.config.vocab_size, (batch, length), generator=generator) for length in (source, target)
    )
    mask = torch.ones_like(ids)
    mask[0, -1] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if hasattr(model, "alignments"):
        return inputs | {"target_input_ids": others, "target_attention_mask": torch.ones_like(others)}
    return inputs | ({"decoder_input_ids": others} if model.config.is_encoder_decoder else {})


def _difference(model, exported, inputs: "dict[str, Tensor]", fixed: dict[str, bool]) -> float:
    import torch

    with torch.no_grad():
        expected, found = model(**inputs, **fixed), exported(**inputs)
    tensors = {name: value for name, value in expected.items() if isinstance(value, torch.Tensor)}
    return max(float((found[name] - value).abs().max()) for name, value in tensors.items())
