"""The YAML files under configs/ and what is said when one of them is wrong."""

import dataclasses
from pathlib import Path

import pytest
import yaml
from helpers import FAMILIES
from transformers import BartConfig, MarianConfig, PreTrainedConfig

from hf_attncal import AttnCalMarianConfig, MaskAlignConfig
from hf_attncal.training.settings import (
    TRAINING_KEYS,
    DataConfig,
    EvaluationConfig,
    TokenizerConfig,
    accumulation_steps,
    bf16_is_fast,
    load_config,
    make_config,
    model_classes,
    read_settings,
    training_arguments,
)
from hf_attncal.training.word_alignment import (
    MODEL_KEYS,
    AlignerDataConfig,
    aligner_training_arguments,
    make_aligner_config,
)

FOLDER = Path(__file__).parents[2] / "configs"
ALIGNERS = sorted([*FOLDER.glob("aligner/*.yaml"), FOLDER / "reference_aligner.yaml"])
ADAPTERS = sorted(FOLDER.glob("adapter/*.yaml"))  # their test is in test_train_adapter.py
FILES = [*sorted(FOLDER.glob("translation/*.yaml")), FOLDER / "reference_translation.yaml"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_file_is_valid(path, tmp_path):
    """Known keys only, valid values: the training arguments and the model's config can be made."""
    config = load_config(path, [f"training.output_dir={tmp_path}"])
    assert training_arguments(config).seed == 1
    fields = {f.name for f in dataclasses.fields(AttnCalMarianConfig)}
    config_class, _ = model_classes(config.model["backbone"])
    model = {name: value for name, value in config.model.items() if name in fields}
    assert config_class(**model).d_model % config.model["decoder_attention_heads"] == 0
    assert config.data.train


@pytest.mark.parametrize("path", ALIGNERS, ids=lambda path: path.name)
def test_every_aligner_file_is_valid(path, tmp_path):
    config = make_aligner_config(read_settings(path, [f"training.output_dir={tmp_path}"]))
    assert aligner_training_arguments(config).seed == 1
    model = {name: value for name, value in config.model.items() if name not in MODEL_KEYS}
    assert MaskAlignConfig(**model).d_model == config.model["d_model"]
    assert config.data.train


def test_aligner_reference_explains_every_key_and_states_the_defaults():
    reference = yaml.safe_load((FOLDER / "reference_aligner.yaml").read_text(encoding="utf-8"))
    assert set(reference["data"]) == {f.name for f in dataclasses.fields(AlignerDataConfig)}
    assert set(reference["tokenizer"]) == {f.name for f in dataclasses.fields(TokenizerConfig)}
    stock = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    # From the tokenizer and the data; `symmetrization` has no default of its own here, it is explained in a comment.
    filled_in = {"vocab_size", "pad_token_id", "lowercase", "symmetrization"}
    assert {f.name for f in dataclasses.fields(MaskAlignConfig)} - stock - filled_in <= set(reference["model"])
    stated, default = make_aligner_config(read_settings(FOLDER / "reference_aligner.yaml")), make_aligner_config({})
    fields = {f.name: f.default for f in dataclasses.fields(MaskAlignConfig)}
    for name, value in stated.model.items():
        assert value == default.model.get(name, fields.get(name)), name
    assert stated.training == default.training
    assert (stated.tokenizer, stated.average_last) == (default.tokenizer, default.average_last)
    for name in ("max_length", "lowercase", "valid_pairs"):
        assert getattr(stated.data, name) == getattr(default.data, name)


def test_six_experiments_differ_in_their_switches_only():
    base = load_config(FOLDER / "translation" / "multi30k_base.yaml")
    switches = {}
    for name in ("baseline", "fixed", "annealed", "gated", "leaky", "gumbel"):
        config = load_config(FOLDER / "translation" / f"multi30k_{name}.yaml")
        switches[name] = {key: value for key, value in config.model.items() if key not in base.model}
        assert dataclasses.replace(config, model=base.model) == base
    on = {name: {key: value for key, value in chosen.items() if value} for name, chosen in switches.items()}
    assert on["baseline"] == {}
    for name in ("fixed", "annealed", "gated"):
        assert on[name].pop("calibration") == name
        # what remains is a number of that fusion
        assert set(on[name]) <= {"fixed": {"calibration_weight"}, "annealed": {"annealing_steps"}}.get(name, set())
    for name in ("leaky", "gumbel"):
        assert on[name] == {name: True}


def test_reference_explains_every_key():
    """All keys of our own sections, and all fields that our config adds to Marian's and BART's."""
    text = (FOLDER / "reference_translation.yaml").read_text(encoding="utf-8")
    reference = yaml.safe_load(text)
    for section, cls in (("data", DataConfig), ("tokenizer", TokenizerConfig), ("evaluation", EvaluationConfig)):
        assert set(reference[section]) == {f.name for f in dataclasses.fields(cls)}
    stock = {f.name for f in (*dataclasses.fields(MarianConfig), *dataclasses.fields(BartConfig))}
    ours = {f.name for family in FAMILIES.values() for f in dataclasses.fields(family[2])}
    assert ours - stock <= set(reference["model"])
    assert {*TRAINING_KEYS, "mask_learning_rate", "bf16"} <= set(reference["training"])


def test_reference_states_the_defaults():
    reference = load_config(FOLDER / "reference_translation.yaml")
    defaults = {f.name: f.default for f in dataclasses.fields(AttnCalMarianConfig)}
    model = {k: v for k, v in reference.model.items() if k in defaults}
    assert model == {name: defaults[name] for name in model}
    assert reference.evaluation == EvaluationConfig()
    assert reference.tokenizer == TokenizerConfig()
    stated, made = training_arguments(reference), training_arguments(make_config({}))
    for name in set(reference.training) - {*TRAINING_KEYS, "use_cpu", "dataloader_pin_memory", "logging_dir"}:
        assert getattr(stated, name) == getattr(made, name), name


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"modle": {}}, r"unknown key `modle`. The closest known key is `model`"),
        ({"data": {"trian": {}}}, r"unknown key `data.trian`. The closest known key is `data.train`"),
        ({"data": {"train": {"sorce": "x"}}}, r"unknown key `data.train.sorce`.* `data.train.source`"),
        ({"model": {"calibraton": "gated"}}, r"unknown key `model.calibraton`.* `model.calibration`"),
        ({"training": {"learning_rte": 1}}, r"unknown key `training.learning_rte`.* `training.learning_rate`"),
        ({"evaluation": {"beams": 1}}, r"unknown key `evaluation.beams`.* `evaluation.*beams`"),
        ({"model": {"backbone": "t5"}}, r"`model.backbone` must be one of .*, got 't5'"),
        ({"model": "marian"}, r"`model` must be a section of keys, got 'marian'"),
        ({"average_last": 0}, r"`average_last` must be an integer >= 1, got 0"),
    ],
)
def test_wrong_settings_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        make_config(values)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"tokens_per_step": 100}, r"`training.tokens_per_step` needs `training.tokens_per_batch`"),
        ({"tokens_per_step": 100, "tokens_per_batch": 30}, r"must be a multiple of `tokens_per_batch`.*got 100"),
        (
            {"tokens_per_step": 100, "tokens_per_batch": 50, "gradient_accumulation_steps": 2},
            r"`training.gradient_accumulation_steps` must be left out, got 2",
        ),
        ({"save_total_limit": 2}, r"`training.save_total_limit` must be at least `average_last` \(3\), got 2"),
        ({"label_smoothing_factor": 0.1}, r"`label_smoothing_factor` must be 0"),
    ],
)
def test_contradictions_in_training(training, message, tmp_path):
    config = make_config({"training": {"output_dir": str(tmp_path), **training}, "average_last": 3})
    with pytest.raises(ValueError, match=message):
        training_arguments(config)


def test_tokens_per_step_gives_accumulation(tmp_path, monkeypatch):
    assert accumulation_steps(8192, 1024, 2) == 4
    values = {"output_dir": str(tmp_path), "tokens_per_step": 4096, "tokens_per_batch": 1024}
    args = training_arguments(make_config({"training": values}))
    assert (args.gradient_accumulation_steps, args.max_tokens) == (4, 1024)
    with pytest.raises(ValueError, match=r"x processes \(1024 x 3\), got 4096"):
        accumulation_steps(4096, 1024, 3)


def test_bf16_auto(tmp_path):
    args = training_arguments(make_config({"training": {"output_dir": str(tmp_path)}}))
    assert args.bf16 == bf16_is_fast()
    args = training_arguments(make_config({"training": {"output_dir": str(tmp_path), "bf16": False}}))
    assert not args.bf16


def test_inheritance_and_overrides(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.yaml").write_text("model: {d_model: 8, dropout: 0.2}\ntraining: {learning_rate: 1e-3}\n")
    (tmp_path / "deep" / "mid.yaml").write_text("base: ../base.yaml\nmodel: {dropout: 0.3}\ntokenizer:\n")
    (tmp_path / "top.yaml").write_text(
        "base: deep/mid.yaml\nmodel: {leaky: true}\ndata: {test: {source: a, target: b}}"
    )
    overrides = ["model.d_model=16", "training.learning_rate=5e-4", "data.test=null", "model.calibration=gated"]
    config = load_config(tmp_path / "top.yaml", overrides)
    assert config.model == {
        "backbone": "marian",
        "d_model": 16,
        "dropout": 0.3,
        "leaky": True,
        "calibration": "gated",
    }
    assert config.training["learning_rate"] == 5e-4
    assert config.data.test is None
    assert load_config(tmp_path / "top.yaml").training["learning_rate"] == 1e-3


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.yaml").write_text("base: b.yaml")
    (tmp_path / "b.yaml").write_text("base: a.yaml")
    with pytest.raises(ValueError, match=r"circle: a.yaml -> b.yaml -> a.yaml"):
        load_config(tmp_path / "a.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match=r"list.yaml must hold sections of keys, got list"):
        load_config(tmp_path / "list.yaml")
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "missing.yaml")
    (tmp_path / "fine.yaml").write_text("")
    with pytest.raises(ValueError, match=r"must read `section.key=value`, got 'model.leaky'"):
        load_config(tmp_path / "fine.yaml", ["model.leaky"])


def test_published_settings_hold_no_place(tmp_path):
    config = make_config({"data": {"root": "/somewhere"}, "training": {"output_dir": "/elsewhere"}})
    assert "/somewhere" not in str(config.published())
    assert "/elsewhere" not in str(config.published())
