"""The script for adapters from text files to a scored adapter, and its configuration files."""

import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from helpers import assert_layouts_know, files_that_name
from peft import AutoPeftModelForSeq2SeqLM, PeftModel
from runs import ROOT, german
from runs import adapter_settings as settings
from sacrebleu import corpus_bleu
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.hub import inspect_folder
from hf_attncal.inference.translation import translate_texts
from hf_attncal.training import seq2seq
from hf_attncal.training.adapter import AdapterConfig, AdapterJob, check_base
from hf_attncal.training.folder import revision_of
from hf_attncal.training.sections import read_settings

sys.path.insert(0, str(ROOT / "training"))
import train as script

CONFIGS = [*sorted((ROOT / "configs").glob("adapter/*.yaml")), ROOT / "configs" / "reference_adapter.yaml"]


def same_weights(one: Path, other: Path) -> bool:
    first, second = (AutoModelForSeq2SeqLM.from_pretrained(folder).state_dict() for folder in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first)


def test_text_to_scored_adapter(base, corpus, tmp_path):
    """All that the script leaves behind; then a resume that goes on from the last checkpoint."""
    arguments = settings(base, calibration="annealed", annealing_steps=10)
    results = script.main([*arguments, "--results", str(tmp_path / "results" / "x.json")])
    run = tmp_path / "run"
    stored = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert stored == json.loads((tmp_path / "results" / "x.json").read_text(encoding="utf-8"))
    assert stored["steps"] == 4
    assert stored["trained_parameters"] == 2 * 2 * 16 * 16
    assert stored["adapter_bytes"] == (run / "adapter_model.safetensors").stat().st_size
    assert len(stored["attention"]["reliability_level"]) == 2
    assert sum("mask_loss" in entry for entry in stored["log_history"]) == 4
    assert files_that_name(tmp_path, run) == {"adapter_config.json"}  # PEFT loads the base from there
    card = (run / "README.md").read_text(encoding="utf-8")
    assert f"- Base model: `base` (`{revision_of(str(base))}`)" in card
    assert "`generate()` searches as the base model says" in card
    assert "`generate(num_beams=2, length_penalty=1.0)`" in card
    assert inspect_folder(run).problems == inspect_folder(run / "checkpoint-4").problems
    assert "`base_model_name_or_path`" in str(inspect_folder(run))
    assert_layouts_know(run)

    lines = (corpus / "test.en").read_text(encoding="utf-8").splitlines()
    tokenizer = AutoTokenizer.from_pretrained(run)
    adapted = AutoPeftModelForSeq2SeqLM.from_pretrained(run)
    assert adapted.annealing_step == 4
    for model, what in ((adapted, "trained"), (AutoModelForSeq2SeqLM.from_pretrained(base), "base")):
        score = corpus_bleu(
            translate_texts(model, tokenizer, lines, num_beams=2), [list(map(german, lines))], tokenize="none"
        ).score
        assert score == results["test"][what]["bleu"]

    with pytest.raises(ValueError, match="holds another run"):
        script.main(arguments)


def test_a_base_that_asks_for_a_kernel_of_the_hub_is_refused(base):
    saved = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(saved | {"attn_implementation": "someone/kernel"}))
    config = AdapterConfig.make({"model": {"checkpoint": str(base)}, "adapter": {"calibration": "gated"}})
    with pytest.raises(ValueError, match=r"`attn_implementation`.*got 'someone/kern"):
        check_base(config.model, config.adapter)


def test_scored_in_the_precision_of_the_weights(base, monkeypatch):
    """Under bfloat16 autocast in training, and not after it."""
    seen = []
    score = seq2seq.evaluate

    def evaluate(model, *arguments, **options):
        hook = model.get_encoder().layers[0].fc1.register_forward_hook(lambda *call: seen.append(call[2].dtype))
        result = score(model, *arguments, **options)
        hook.remove()
        return result

    monkeypatch.setattr(seq2seq, "evaluate", evaluate)
    script.main(
        [*settings(base, calibration="fixed"), "training.bf16=true", "training.eval_strategy=no", "data.test=null"]
    )
    assert set(seen) == {torch.float32}


def test_null_starts_at_the_given_mass(base):
    """The first step changes little; `null_mass` belongs to leaky adapters."""
    arguments = settings(base, calibration=None, leaky=True, null_mass=0.2)
    script.main([*arguments, "training.max_steps=1", "training.learning_rate=1e-9", "data.test=null"])
    model = AutoPeftModelForSeq2SeqLM.from_pretrained(base.parent / "run").eval()
    tokenizer = AutoTokenizer.from_pretrained(base)
    lines = {side: (base.parent / "data" / f"train.{side}").read_text().splitlines()[:64] for side in ("en", "de")}
    batch = tokenizer(lines["en"], text_target=lines["de"], padding=True, return_tensors="pt")
    real = batch["labels"] != tokenizer.pad_token_id
    with torch.no_grad():
        nulls = model(**batch, output_attention_details=True).null_attentions
    for null in nulls:
        assert null.transpose(0, 1)[:, real].mean().item() == pytest.approx(0.2, rel=0.1)
    with pytest.raises(ValueError, match="null_mass"):
        AdapterConfig.make({"adapter": {"calibration": "fixed", "null_mass": 0.2}})


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ({"calibration": "fixd"}, "`adapter.calibration` must be `None` or one of"),
        ({"leaky": True, "null_mass": 2}, "`adapter.null_mass` must be between 0 and 1, .* got 2"),
    ],
    ids=str,
)
def test_wrong_settings_are_named_before_text_is_read(adapter, message):
    with pytest.raises(ValueError, match=message):
        AdapterConfig.make({"adapter": adapter})


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_file_is_valid(path, tmp_path):
    run = AdapterConfig.make(read_settings(path, [f"training.output_dir={tmp_path}"]))
    assert run.arguments().seed == 1
    assert run.model.label_smoothing == (0.0 if path.name.startswith("reference") else 0.1)
    assert isinstance(run.method_config(), AttentionCalibrationConfig)
    assert run.data.train


def test_a_missing_base_is_reported(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"job: adapter\ntraining: {{output_dir: {tmp_path}/run}}\n")
    with pytest.raises(ValueError, match=r"`model.checkpoint`.*got none"):
        script.main(["--config", str(path)])


def test_deprecations_by_peft_are_not_shown(base):
    """Elsewhere `conftest.py` ignores this warning, so a user met it first."""
    values = {"model": {"checkpoint": str(base)}, "adapter": {"calibration": "gated"}}
    config = AdapterConfig.make({"data": {"train": {"source": "a", "target": "b"}}, **values})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(AdapterJob.new_model(SimpleNamespace(checkpoint=str(base)), config, None), PeftModel)
