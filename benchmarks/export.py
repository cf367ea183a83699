"""Exported graphs against PyTorch: how far their numbers are apart, and how many times as fast they are.

    python benchmarks/export.py
    python benchmarks/export.py --d-model 16 --layers 1 --ffn 16 --vocab 60 --batch 2 --length 4 --repeats 1

Models have the size of a small run (`attncal train` with 100,000 pairs) and random weights. A graph is written by
`attncal export`, opened from its file as the card says, and both sides compute one batch with teacher forcing, on one
thread each.
"""

import argparse
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import common
import numpy as np
import torch
from rich.progress import track
from transformers import PreTrainedModel

from hf_attncal.families import FAMILIES
from hf_attncal.hub.export import GRAPH_FORMATS, export_graph

# Family, by its name -> settings of its model.
MODELS = {
    "marian": {"calibration": "gated"},
    "bart": {},
    "discrete_transformer": {"streams": 1},
    "mask_align": {},
}


def built(args: argparse.Namespace, name: str) -> PreTrainedModel:
    """A random model of this family."""
    family = next(family for family in FAMILIES.values() if family.name == name)
    sizes = common.sizes(args) | {"init_std": 0.7 * args.d_model**-0.5, "scale_embedding": True}
    if family.source is not None:
        names = ("vocab_size", "d_model", "encoder_layers", "decoder_layers", "max_position_embeddings")
        sizes = {key: sizes[key] for key in names} | {"attention_heads": args.heads, "ffn_dim": args.ffn}
    torch.manual_seed(args.seed)
    return family.model_class(family.config_class(**sizes, **MODELS[name])).eval()


def inputs_of(args: argparse.Namespace, model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """A batch of random sentences with padding, and their translations."""
    batch = common.batch(args)
    source, mask = batch["input_ids"], batch["attention_mask"]
    if hasattr(model, "alignments"):
        source = source.masked_fill(mask == 0, model.config.pad_token_id)
        target = {"target_input_ids": source.flip(0), "target_attention_mask": mask.flip(0)}
        return {"input_ids": source, "attention_mask": mask} | target
    return {"input_ids": source, "attention_mask": mask, "decoder_input_ids": source.flip(0)}


def opened(folder: str, format: str, output: str) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """A function that computes an output of the graph in `folder`, on one thread."""
    path = Path(folder) / GRAPH_FORMATS[format].graph
    if format == "onnx":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        return lambda feed: session.run([output], feed)[0]
    import openvino

    settings = GRAPH_FORMATS[format].runner["config"] | {"INFERENCE_NUM_THREADS": 1}
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda feed: compiled(feed)[output]


def compared(args: argparse.Namespace, model: PreTrainedModel, format: str) -> dict:
    """The largest difference of the graph to PyTorch, and how many times as fast it is."""
    aligns = hasattr(model, "alignments")
    output = "forward_attention" if aligns else "logits"
    inputs, fixed = inputs_of(args, model), {} if aligns else {"use_cache": False}
    feed = {name: tensor.numpy() for name, tensor in inputs.items()}

    @torch.inference_mode()
    def by_torch() -> np.ndarray:
        return model(**inputs, **fixed)[output].numpy()

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        export_graph(folder, format)
        run = opened(folder, format, output)

        def by_graph() -> np.ndarray:
            return run(feed)

        expected = by_torch()
        difference = float(np.abs(expected - by_graph()).max())
        torch_seconds, graph_seconds = common.in_turn(args, by_torch, by_graph)
    return {
        "output": output,
        "largest_value": float(np.abs(expected).max()),
        "max_difference": difference,
        "torch_seconds": common.spread(torch_seconds),
        "graph_seconds": common.spread(graph_seconds),
        "times_as_fast": common.spread([t / g for t, g in zip(torch_seconds, graph_seconds, strict=True)]),
    }


def main() -> None:
    parser = common.parser(__doc__.splitlines()[0], batch=16, length=25, repeats=31, variants=MODELS)
    parser.add_argument("--formats", nargs="+", choices=GRAPH_FORMATS, default=list(GRAPH_FORMATS), metavar="FORMAT")
    parser.set_defaults(device="cpu", threads=1, d_model=256, layers=3, heads=4, ffn=512, vocab=8000)
    args = parser.parse_args()
    common.set_up(args)
    packages = {name: version(name) for format in args.formats for name in GRAPH_FORMATS[format].packages}
    result = common.record("export", args, packages=packages)
    variants, rows = {}, []
    for name in track(args.variants, description="families"):
        variants[name] = {format: compared(args, built(args, name), format) for format in args.formats}
        for format, numbers in variants[name].items():
            ratio = numbers["times_as_fast"]
            between = f"{ratio['min']:.2f} - {ratio['max']:.2f}"
            rows.append([f"{name}, {format}", f"{numbers['max_difference']:.1e}", f"{ratio['median']:.2f}", between])
    columns = ["graph", "largest difference", "times as fast", "min - max"]
    common.show(f"Graphs against PyTorch, {args.batch} sentences of {args.length} tokens", columns, rows)
    result["variants"] = variants
    common.save(args, result)


if __name__ == "__main__":
    main()
