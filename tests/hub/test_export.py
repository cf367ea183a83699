"""Exported graphs: they compute what PyTorch does, run without it as the card says, or are refused with the reason."""

import re
import subprocess
import sys

import pytest
import torch
from aligner_helpers import TEXT, tiny_mask_align
from helpers import tiny_model
from luong_helpers import tiny_luong
from transformers.utils import logging

from hf_attncal.commands import main
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.hub import ExportError, export_graph, write_model_card
from hf_attncal.hub.publish import check_contents

logging.set_verbosity_error()
MISSING = "the packages of an export are not installed"
WITHOUT_TORCH = "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"


@pytest.fixture
def needs_onnx():
    for name in ("transformers.exporters.exporter_onnx", "onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(name, reason=MISSING)


def saved(model, folder):
    tokenizer = train_bpe_tokenizer(TEXT * 3, vocab_size=60)
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    write_model_card(folder, model_name="m", summary="s", training_data="t", example="a ||| b")
    return folder


def run_card(folder, heading="## Without PyTorch") -> str:
    """What the example of the card prints, where neither PyTorch nor transformers can be imported."""
    card = (folder / "README.md").read_text(encoding="utf-8").partition(heading)[2]
    code = WITHOUT_TORCH + card.partition("```python\n")[2].partition("```")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def seq2seq(**config):
    return tiny_model(
        "marian", torch.float32, vocab_size=60, decoder_vocab_size=60, max_position_embeddings=80, **config
    )


def greedy(model) -> str:
    """What the card's example of a translation model prints, by PyTorch."""
    tokenizer = train_bpe_tokenizer(TEXT * 3, vocab_size=60)
    ids, target = tokenizer("A sentence", return_tensors="pt").input_ids, torch.tensor([[2]])
    while target.shape[1] < 64 and (target[0, -1] != 2 or target.shape[1] == 1):
        logits = model(input_ids=ids, decoder_input_ids=target, use_cache=False).logits
        target = torch.cat([target, logits[:, -1:].argmax(-1)], dim=1)
    return tokenizer.decode(target[0], skip_special_tokens=True).strip()


def test_a_gated_model_translates_without_torch(needs_onnx, tmp_path):
    model = seq2seq(calibration="gated", leaky=True).eval()
    assert export_graph(saved(model, tmp_path)).difference < 1e-4
    assert run_card(tmp_path).strip() == greedy(model)
    graph = (tmp_path / "model.onnx").read_bytes()
    assert not any(told in graph for told in (b"stack_trace", b"site-packages", b"hf_attncal"))
    assert check_contents({"model.onnx": graph}, "anna/model") == {}


@pytest.mark.slow
def test_openvino_stands_beside_onnx(needs_onnx, tmp_path):
    pytest.importorskip("openvino", reason=MISSING)
    model = seq2seq(calibration="gated", leaky=True).eval()
    saved(model, tmp_path)
    for format in ("onnx", "openvino", "openvino"):
        assert export_graph(tmp_path, format).difference < 1e-4
    assert (tmp_path / "README.md").read_text(encoding="utf-8").count("## With OpenVINO") == 1
    assert run_card(tmp_path, "## With OpenVINO").strip() == run_card(tmp_path).strip() == greedy(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("marian", {"copy": True}),
        ("marian", {"calibration": "annealed", "annealing_steps": 10}),
        ("bart", {}),
        ("bart", {"calibration": "gated", "leaky": True}),
    ],
)
def test_other_models(family, config, needs_onnx, tmp_path):
    sizes = {"vocab_size": 60} | ({"decoder_vocab_size": 60} if family == "marian" else {})
    assert export_graph(saved(tiny_model(family, torch.float32, **sizes, **config), tmp_path)).difference < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_an_aligner_aligns_without_torch(format, needs_onnx, tmp_path):
    if format == "openvino":
        pytest.importorskip("openvino", reason=MISSING)
    model = tiny_mask_align(train_bpe_tokenizer(TEXT * 3, vocab_size=60))
    assert export_graph(saved(model, tmp_path), format).difference < 1e-4
    assert run_card(tmp_path, {"onnx": "## Without PyTorch", "openvino": "## With OpenVINO"}[format]).startswith("[[[")


@pytest.mark.slow
def test_a_recurrent_model_is_refused_with_the_first_error(needs_onnx, tmp_path, capfd):
    folder = saved(tiny_luong(vocab_size=60).float(), tmp_path)
    with pytest.raises(ExportError, match=r"cannot be exported \(LuongFor.*one by one.*Use it with PyTorch"):
        export_graph(folder)
    assert not (folder / "model.onnx").exists()
    capfd.readouterr()
    assert main(["export", str(folder)]) == 1
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(r"attncal: error: .*cannot be exported.*\n", err), err


@pytest.mark.parametrize("module", ["transformers.exporters.exporter_onnx", "onnxruntime"])
def test_what_is_missing_is_named(module, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ExportError, match="pip install onnx onnxscript onnxruntime"):
        export_graph(saved(seq2seq(), tmp_path))
