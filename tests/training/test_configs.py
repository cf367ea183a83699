"""Settings of the jobs: the files under configs/, and the messages about wrong ones."""

import dataclasses
import re
from pathlib import Path

import pytest
import yaml
from helpers import FAMILIES
from peft import PeftConfig
from transformers import BartConfig, MarianConfig, PreTrainedConfig, TrainerCallback
from transformers.integrations import integration_utils
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

from hf_attncal import AttnCalMarianConfig, MaskAlignConfig
from hf_attncal.alignment.aligner_job import AlignerConfig
from hf_attncal.families import translators
from hf_attncal.inference.opening import bf16_is_fast
from hf_attncal.models.configuration_discrete import DiscreteTransformerConfig
from hf_attncal.models.configuration_luong import LuongConfig
from hf_attncal.training.adapter import AdapterConfig
from hf_attncal.training.language import LanguageConfig
from hf_attncal.training.sections import hints_of, read_settings
from hf_attncal.training.summarization import SummarizationConfig
from hf_attncal.training.translation import TranslationConfig

FOLDER = Path(__file__).parents[2] / "configs"
JOBS = {
    "translation": TranslationConfig,
    "aligner": AlignerConfig,
    "adapter": AdapterConfig,
    "language": LanguageConfig,
    "summarization": SummarizationConfig,
}
# Those of adapters are in test_train_adapter.py.
FILES = [(name, path) for name in JOBS if name != "adapter" for path in sorted(FOLDER.glob(f"{name}/*.yaml"))]
FILES += [(name, FOLDER / f"reference_{name}.yaml") for name in JOBS if name != "adapter"]


@pytest.mark.parametrize("form", ["text", "list"])
def test_a_reporter_that_is_not_installed_is_reported_before_reading(form, monkeypatch):
    """The Trainer would stop at it after the text is read, as at a bug."""
    monkeypatch.setattr(integration_utils, "is_clearml_available", lambda: False)
    values = {"training": {"output_dir": "x", "report_to": "clearml" if form == "text" else ["clearml"]}}
    with pytest.raises(ValueError, match=r"^`training.report_to`.*install clearml"):
        TranslationConfig.make(values)
    monkeypatch.setitem(INTEGRATION_TO_CALLBACK, "clearml", TrainerCallback)
    assert TranslationConfig.make(values).training["report_to"]


def test_an_unknown_reporter_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"`training.report_to`.*tensorbord.*tensorboard"):
        TranslationConfig.make({"training": {"output_dir": "x", "report_to": "tensorbord"}})
    for fine in ("none", "all", None, []):
        TranslationConfig.make({"training": {"output_dir": "x", "report_to": fine}})


def load(path: Path, *overrides: str) -> TranslationConfig:
    return TranslationConfig.make(read_settings(path, list(overrides)))


def reference(name: str) -> dict:
    return yaml.safe_load((FOLDER / f"reference_{name}.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("job", "path"), FILES, ids=lambda value: getattr(value, "name", value))
def test_every_file_is_valid(job, path, tmp_path):
    """Known keys only, valid values: the training arguments and the model's config can be made."""
    config = JOBS[job].make(read_settings(path, [f"training.output_dir={tmp_path}"]))
    assert config.arguments().seed == 1
    assert config.data.train
    if job == "language":
        config_class = DiscreteTransformerConfig
    else:
        config_class = (config.family if job == "aligner" else translators()[config.model["backbone"]]).config_class
    fields = hints_of(config_class).keys() & config.model.keys()
    tokens = {"unk_token_id": 1} if config.model.get("max_copied_tokens") else {}
    model = config_class(**{name: config.model[name] for name in fields} | tokens)
    # `null` is filled in where a field follows from another.
    assert all(config.model[name] in (None, getattr(model, name)) for name in fields)


@pytest.mark.parametrize("job", JOBS)
def test_reference_explains_every_key_of_our_own_sections(job):
    stated = reference(job)
    made = JOBS[job].make({})
    for name in {"data", "tokenizer", "evaluation"} & stated.keys():
        assert set(stated[name]) == {f.name for f in dataclasses.fields(getattr(made, name))}
    assert set(stated) == {"job", *(f.name for f in dataclasses.fields(JOBS[job]))}
    assert stated["job"] == job
    keys = {"tokens_per_step", "tokens_per_batch", "bf16", "save_total_limit", *JOBS[job].defaults({})["training"]}
    keys -= {"max_steps"}  # of the aligner's size "base"
    added = {"adagrad_initial_accumulator", "agreement_warmup_steps"}
    ours = added & hints_of(JOBS[job].arguments_class).keys()
    assert keys | ours <= set(stated["training"])


def test_translation_reference_explains_every_field_of_our_config():
    """All fields that our config adds to Marian's and BART's."""
    stock = {f.name for f in (*dataclasses.fields(MarianConfig), *dataclasses.fields(BartConfig))}
    ours = {f.name for family in FAMILIES.values() for f in dataclasses.fields(family[2])}
    assert ours - stock <= set(reference("translation")["model"])


def test_aligner_reference_explains_every_field_of_its_config():
    stock = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    # From the tokenizer and the data; `symmetrization` has no default of its own here, it is explained in a comment.
    filled_in = {"vocab_size", "pad_token_id", "lowercase", "tokenize", "fold_words", "symmetrization"}
    assert {f.name for f in dataclasses.fields(MaskAlignConfig)} - stock - filled_in <= set(
        reference("aligner")["model"]
    )


def test_language_reference_explains_every_field_that_our_config_adds():
    stock = {f.name for f in dataclasses.fields(MarianConfig)}
    ours = {f.name for f in dataclasses.fields(DiscreteTransformerConfig)} - stock
    assert ours <= set(reference("language")["model"])


def test_summarization_reference_explains_every_field_of_its_config():
    """Those of a luong model; the switches, which it shares with Marian and BART, are in the other reference."""
    stock = {f.name for f in dataclasses.fields(PreTrainedConfig)}
    filled_in = {"vocab_size", "use_cache", *(f"{name}_token_id" for name in ("bos", "eos", "pad", "decoder_start"))}
    ours = {f.name for f in dataclasses.fields(LuongConfig)} - stock - filled_in
    assert ours - set(reference("translation")["model"]) <= set(reference("summarization")["model"])


def test_adapter_reference_explains_every_field_of_its_config():
    method = hints_of(type(AdapterConfig.make({}).method_config()))
    ours = {name for name in method if name not in hints_of(PeftConfig)}
    filled_in = {"label_smoothing", "base_model_type", "base_d_model"}
    assert set(reference("adapter")["adapter"]) == ours - filled_in | {"null_mass"}
    assert set(reference("adapter")["model"]) == set(hints_of(type(AdapterConfig.make({}).model)))


@pytest.mark.parametrize("job", JOBS)
def test_reference_states_the_defaults(job, tmp_path):
    output = {"training": {"output_dir": str(tmp_path)}}
    stated = JOBS[job].make(read_settings(FOLDER / f"reference_{job}.yaml"))
    default = JOBS[job].make({})
    assert stated.training["output_dir"] == default.training["output_dir"]
    for name in set(dataclasses.asdict(default)) - {"data", "model", "adapter", "training"}:
        assert getattr(stated, name) == getattr(default, name), name
    for name in {f.name for f in dataclasses.fields(default.data)} - {"train", "dev", "test"}:
        assert getattr(stated.data, name) == getattr(default.data, name), name
    classes = {
        "translation": AttnCalMarianConfig,
        "aligner": MaskAlignConfig,
        "language": DiscreteTransformerConfig,
        "summarization": LuongConfig,
    }
    if job in classes:
        defaults = {f.name: f.default for f in dataclasses.fields(classes[job])} | default.model
        assert {name: defaults.get(name) for name in stated.model} == stated.model
    else:
        assert stated.model == default.model
    if job == "adapter":
        assert stated.method_config() == default.method_config()
    stated.training |= output["training"]
    default.training |= output["training"]
    made = default.arguments()
    for name in set(stated.training) - {"tokens_per_step", "use_cpu", "dataloader_pin_memory"}:
        assert getattr(stated.arguments(), name) == getattr(made, name), name


def test_experiments_differ_in_their_switches_only():
    base = load(FOLDER / "translation" / "multi30k_base.yaml")
    switches = {}
    for name in ("baseline", "fixed", "annealed", "gated", "leaky", "gumbel"):
        config = load(FOLDER / "translation" / f"multi30k_{name}.yaml")
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


# ---- the same is wrong in every job, and said in the same words ----

EVERY = list(JOBS)
PAIRS = ["translation", "adapter", "aligner", "summarization"]
MADE = ["translation", "aligner", "language", "summarization"]
SCORED = ["translation", "adapter"]
# Jobs, key, and values that it must not have.
VALUES = [
    (EVERY, "data", 3),
    (EVERY, "data.train", "x"),
    (EVERY, "data.max_length", "x", 1),
    (EVERY, "model.attn_implementation", "evil/kernel"),
    (EVERY, "training.learning_rate", "abc", -1, float("nan")),
    (EVERY, "training.max_steps", 0, 8.5),
    (EVERY, "training.bf16", "maybe"),
    (EVERY, "training.lr_scheduler_type", "linar"),
    (EVERY, "training.eval_strategy", True),
    (EVERY, "training.push_to_hub", True),
    (EVERY, "training.generation_config", "me/x"),
    (EVERY, "training.dataloader_num_workers", 10**6),
    (EVERY, "minutes", 1e308, float("nan"), float("inf")),
    (PAIRS, "data.train", {"source": "x"}),
    (PAIRS, "data.dev", {"dataset": "x"}),
    (MADE, "tokenizer.vocab_size", 10**12, "8k"),
    (MADE, "model.init_from", 3),
    (MADE, "model.label_smoothing", 2.0),
    (SCORED, "evaluation", None),
    (SCORED, "evaluation.num_beams", "four", 0),
    (SCORED, "evaluation.bleu_tokenize", "14a"),
    (["translation"], "model.backbone", "t5"),
    (["translation"], "model.calibration", "gatd"),
    (["summarization"], "model.score", "sum"),
    (["summarization"], "data.max_source_length", 1, 600),
    (["summarization"], "evaluation.rouge_tokenize", "13a"),
    (["aligner"], "model.size", "huge"),
    (["adapter"], "adapter", []),
    (["language"], "model.streams", 3),
    (["language"], "tokenizer.kind", "letters"),
    (["language"], "data.end_of_sequence", 0),
    (["language"], "data.train", {"text": []}),
]
# Jobs, a key that is not known, and the closest one that is.
KEYS = [
    (EVERY, "modle", "model"),
    (EVERY, "data.trian", "data.train"),
    (EVERY, "training.learning_rte", "training.learning_rate"),
    (PAIRS, "data.train.sorce", "data.train.source"),
    (MADE, "tokenizer.pretraned", "tokenizer.pretrained"),
    (["adapter"], "adapter.calibraton", "adapter.calibration"),
]
# Settings that do not go together, or that a job does not have.
STEP = {"tokens_per_step": 100}
TOGETHER = [
    ("translation", {"training": STEP}, r"`training.tokens_per_step` needs `training.tokens_per_batch`"),
    ("translation", {"training": STEP | {"tokens_per_batch": 30}}, r"multiple of `tokens_per_batch`.*got 100"),
    (
        "translation",
        {"training": STEP | {"tokens_per_batch": 50, "gradient_accumulation_steps": 2}},
        r"`training.gradient_accumulation_steps` must be left out .*, got 2",
    ),
    (
        "translation",
        {"training": {"tokens_per_batch": 9, "train_sampling_strategy": "group_by_length"}},
        r"`training.train_sampling_strategy` must be 'random'",
    ),
    ("translation", {"training": {"hub_token": "hf_secret"}}, r"`training.hub_token` must be left out, got one\."),
    ("language", {"average_last": 3, "training": {"save_total_limit": 2}}, r"`training.save_total_limit`.*got 2"),
    ("adapter", {"adapter": {"base_model_name_or_path": "x"}}, r"unknown key `adapter.base_model_name_or_path`"),
]


def at(key: str, value) -> dict:
    """Settings in which a key has a value."""
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize(
    ("job", "key", "value"), [(job, key, value) for jobs, key, *values in VALUES for job in jobs for value in values]
)
def test_a_wrong_value_is_named(job, key, value):
    with pytest.raises(ValueError, match=rf"`{re.escape(key)}` must .*got {re.escape(repr(value))}"):
        JOBS[job].make(at(key, value)).arguments()


@pytest.mark.parametrize(("job", "key", "closest"), [(job, *keys) for jobs, *keys in KEYS for job in jobs])
def test_an_unknown_key_is_named_with_the_closest(job, key, closest):
    with pytest.raises(ValueError, match=rf"unknown key `{key}`\. .*`{closest}`"):
        JOBS[job].make(at(key, 3))


@pytest.mark.parametrize(("job", "values", "message"), TOGETHER, ids=str)
def test_settings_that_do_not_go_together_are_named(job, values, message):
    with pytest.raises(ValueError, match=message):
        JOBS[job].make(values).arguments()


@pytest.mark.parametrize("job", JOBS)
def test_a_token_for_the_hub_is_not_printed_and_what_switches_nothing_on_is_taken(job, tmp_path):
    values = {"training": {"output_dir": str(tmp_path), "hub_token": "hf_secret"}}
    with pytest.raises(ValueError, match=r"`training.hub_token`") as told:
        JOBS[job].make(values)
    assert "hf_secret" not in str(told.value)
    values["training"] |= {"hub_token": None, "push_to_hub": False}
    assert not JOBS[job].make(values).arguments().push_to_hub


@pytest.mark.parametrize("job", ["translation", "aligner"])
def test_fields_that_do_not_fit_a_checkpoint_are_named(job, tmp_path):
    config_class = MaskAlignConfig if job == "aligner" else AttnCalMarianConfig
    config_class(d_model=24).save_pretrained(tmp_path)
    start = {"init_from": str(tmp_path)}
    assert JOBS[job].make({"model": start | {"dropout": 0.3}}).model["dropout"] == 0.3
    with pytest.raises(ValueError, match=r"`model.label_smoothing` must be"):
        JOBS[job].make({"model": start | {"label_smoothing": 3.0}})
    with pytest.raises(ValueError, match=r"`model.init_from`.*nowhere"):
        JOBS[job].make({"model": {"init_from": str(tmp_path / "nowhere")}})


@pytest.mark.parametrize("job", JOBS)
def test_tokens_per_step_gives_accumulation(job, tmp_path, monkeypatch):
    values = {"output_dir": str(tmp_path), "tokens_per_step": 4096, "tokens_per_batch": 1024}
    args = JOBS[job].make({"training": values}).arguments()
    assert (args.gradient_accumulation_steps, args.tokens_per_batch) == (4, 1024)
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(ValueError, match=r"1024 x 3.*got 4096"):
        JOBS[job].make({"training": values}).arguments()


@pytest.mark.parametrize("job", JOBS)
def test_derived_settings_are_computed(job, tmp_path, monkeypatch):
    training = {"output_dir": str(tmp_path)}
    args = JOBS[job].make({"training": training}).arguments()
    assert args.bf16 == bf16_is_fast()
    assert args.save_total_limit == 1
    monkeypatch.setattr("hf_attncal.training.settings.bf16_is_fast", lambda: False)
    with pytest.warns(UserWarning, match="emulates bfloat16"):
        TranslationConfig.make({"training": {"output_dir": "run", "bf16": True}}).arguments()
    off = {"bf16": False, "eval_strategy": False, "save_strategy": False, "save_total_limit": 7}
    args = JOBS[job].make({"training": training | off}).arguments()
    assert not args.bf16
    assert (args.eval_strategy, args.save_strategy, args.save_total_limit) == ("no", "no", 7)
    if job not in ("adapter", "encoder"):
        assert JOBS[job].make({"training": training, "average_last": 4}).arguments().save_total_limit == 4


def test_inheritance_and_overrides(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "base.yaml").write_text("model: {d_model: 8, dropout: 0.2}\ntraining: {learning_rate: 1e-3}\n")
    (tmp_path / "deep" / "mid.yaml").write_text("base: ../base.yaml\nmodel: {dropout: 0.3}\ntokenizer:\n")
    (tmp_path / "top.yaml").write_text(
        "base: deep/mid.yaml\nmodel: {leaky: true}\ndata: {test: {source: a, target: b}}"
    )
    overrides = ["model.d_model=16", "training.learning_rate=5e-4", "data.test=null", "model.calibration=gated"]
    config = load(tmp_path / "top.yaml", *overrides)
    assert config.model == {"backbone": "marian", "d_model": 16, "dropout": 0.3, "leaky": True, "calibration": "gated"}
    assert config.training["learning_rate"] == 5e-4
    assert config.data.test is None
    assert load(tmp_path / "top.yaml").training["learning_rate"] == 1e-3


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "a.yaml").write_text("base: b.yaml")
    (tmp_path / "b.yaml").write_text("base: a.yaml")
    with pytest.raises(ValueError, match=r"a.yaml.*b.yaml.*a.yaml"):
        load(tmp_path / "a.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(ValueError, match=r"list.yaml.*got list"):
        load(tmp_path / "list.yaml")
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "missing.yaml")
    (tmp_path / "fine.yaml").write_text("")
    (tmp_path / "number.yaml").write_text("base: 3")
    with pytest.raises(ValueError, match=r"`base`.*got 3"):
        load(tmp_path / "number.yaml")
    with pytest.raises(ValueError, match=r"YAML, got 'model.leaky"):
        load(tmp_path / "fine.yaml", "model.leaky=[")
    with pytest.raises(ValueError, match=r"`section.key=value`.*got 'model.leaky'"):
        load(tmp_path / "fine.yaml", "model.leaky")
