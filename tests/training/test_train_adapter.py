"""The script for adapters from text files to a scored adapter, and its configuration files."""

import json
import sys
import warnings
from pathlib import Path

import pytest
import torch
from helpers import assert_layouts_know, files_that_name
from peft import AutoPeftModelForSeq2SeqLM, PeftModel
from runs import ROOT, german
from runs import adapter_settings as settings
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_attncal.hub import inspect_folder
from hf_attncal.inference.seals import revision_of
from hf_attncal.inference.translation import translate_texts
from hf_attncal.metrics.bleu import bleu
from hf_attncal.training import seq2seq
from hf_attncal.training.adapter import ADAPTER_METHODS, AdapterConfig, base_checkpoint, build
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
        score = bleu(translate_texts(model, tokenizer, lines, num_beams=2), list(map(german, lines)), "none").score
        assert score == results["test"][what]["bleu"]

    with pytest.raises(ValueError, match="holds another run"):
        script.main(arguments)


@pytest.mark.parametrize("method", ["attncal", "full"])
def test_a_base_that_asks_for_a_kernel_of_the_hub_is_refused(method, base):
    saved = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(saved | {"attn_implementation": "someone/kernel"}))
    fields = {"calibration": "gated"} if method == "attncal" else {}
    config = AdapterConfig.make({"model": {"checkpoint": str(base)}, "adapter": {"method": method, **fields}})
    tokenizer = AutoTokenizer.from_pretrained(base)
    for read in (lambda: base_checkpoint(config, tokenizer, base.parent / "out"), lambda: build(config, str(base))):
        with pytest.raises(ValueError, match=r"`attn_implementation`.*got 'someone/kern"):
            read()


@pytest.mark.parametrize("method", ["lora", pytest.param("full", marks=pytest.mark.slow)])
def test_lora_and_full_training_are_baselines(base, method):
    adapter = {"method": method} | ({"r": 2, "target_modules": ["q_proj"]} if method == "lora" else {})
    results = script.main([*settings(base, **adapter), "data.test=null"])
    assert results["steps"] == 4
    assert sum("nmt_loss" in entry for entry in results["log_history"]) == 4
    assert set(results["dev"]) == ({"trained", "base"} if method == "lora" else {"trained"})
    run = base.parent / "run"
    if method == "lora":
        assert results["trained_parameters"] == 5 * 2 * 2 * 16
        assert PeftModel.from_pretrained(AutoModelForSeq2SeqLM.from_pretrained(base), run)
    else:
        assert results["trained_parameters"] > 0.8 * results["parameters"]
        assert not same_weights(run, base)
        search = AutoModelForSeq2SeqLM.from_pretrained(run).generation_config
        assert (search.num_beams, search.max_length) == (2, 32)


def test_with_a_lora(base):
    """Two adapters and a full model of both, which is what was scored; the base is scored with neither; a resume."""
    arguments = settings(
        base, calibration="fixed", leaky=True, null_mass=0.1, lora={"r": 2, "target_modules": ["q_proj"]}
    )
    results = script.main([*arguments, "training.save_total_limit=1", "evaluation.max_new_tokens=24"])
    run = base.parent / "run"
    tokenizer = AutoTokenizer.from_pretrained(run / "full")
    full = AutoModelForSeq2SeqLM.from_pretrained(run / "full")
    lines = (base.parent / "data" / "test.en").read_text(encoding="utf-8").splitlines()
    for model, what in ((full, "trained"), (AutoModelForSeq2SeqLM.from_pretrained(base), "base")):
        score = bleu(
            translate_texts(model, tokenizer, lines, num_beams=2, max_new_tokens=24), list(map(german, lines)), "none"
        ).score
        assert score == pytest.approx(results["test"][what]["bleu"])
    plain = full.generate(**tokenizer(lines, return_tensors="pt", padding=True))
    texts = [text.strip() for text in tokenizer.batch_decode(plain, skip_special_tokens=True)]
    assert texts == (run / "test.trained.hypotheses.txt").read_text(encoding="utf-8").split("\n")[:-1]
    assert plain.shape[1] > 21
    assert full.config.calibration == "fixed"
    assert results["config"]["adapter"]["lora"]["r"] == 2
    files = [run / name / "adapter_model.safetensors" for name in ("calibration", "lora")]
    assert results["adapter_bytes"] == sum(file.stat().st_size for file in files)
    assert files_that_name(run.parent, run) == {f"{name}/adapter_config.json" for name in ("calibration", "lora")}


@pytest.mark.parametrize(
    "adapter",
    [
        {"method": "full"},
        {"calibration": "fixed", "calibration_weight": 2.0, "lora": {"r": 2, "target_modules": ["q_proj"]}},
    ],
    ids=["full", "fixed + lora"],
)
def test_scored_in_the_precision_of_the_weights(base, adapter, monkeypatch):
    """Under bfloat16 autocast in training, and not after it."""
    seen = []
    score = seq2seq.evaluate

    def evaluate(model, *arguments, **options):
        hook = model.get_encoder().layers[0].fc1.register_forward_hook(lambda *call: seen.append(call[2].dtype))
        result = score(model, *arguments, **options)
        hook.remove()
        return result

    monkeypatch.setattr(seq2seq, "evaluate", evaluate)
    script.main([*settings(base, **adapter), "training.bf16=true", "training.eval_strategy=no", "data.test=null"])
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
        ({"lora": 16}, "`adapter.lora` must be a section of keys or null, got 16"),
        ({"lora": {"r": 2}}, "with `target_modules`, got"),
        ({"lora": {"target_modules": ["q_proj"], "use_dora": True}}, "`adapter.lora.use_dora` must be left out"),
        ({"lora": {"target_modules": ["q_proj"], "init_lora_weights": "pissa"}}, "must be left out, got 'pissa'"),
        ({"lora": {"target_modules": ["q_proj"], "bias": "all"}}, "`adapter.lora.bias` must be left out, got 'all'"),
        ({"lora": {"target_modules": ["q_proj"]}, "layers": [0], "renormalize": False}, "needs `renormalize: true`"),
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
    method = ADAPTER_METHODS[run.adapter["method"]]
    assert method is None or isinstance(run.method_config(), method)
    assert run.data.train


def test_a_missing_base_is_reported(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(f"job: adapter\ntraining: {{output_dir: {tmp_path}/run}}\n")
    with pytest.raises(ValueError, match=r"`model.checkpoint`.*got none"):
        script.main(["--config", str(path)])


@pytest.mark.parametrize("method", ["attncal", "lora"])
def test_deprecations_by_peft_are_not_shown(base, method):
    """Elsewhere `conftest.py` ignores this warning, so a user met it first."""
    fields = {"calibration": "gated"} if method == "attncal" else {"target_modules": ["q_proj"]}
    values = {"model": {"checkpoint": str(base)}, "adapter": {"method": method, **fields}}
    config = AdapterConfig.make({"data": {"train": {"source": "a", "target": "b"}}, **values})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert isinstance(build(config, str(base)), PeftModel)
