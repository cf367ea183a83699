"""Presets: what ships, what fits it to the text, and what a user's own settings change of it."""

import pytest

from hf_attncal.alignment.aligner_job import AlignerConfig
from hf_attncal.training.adapter import AdapterConfig
from hf_attncal.training.language import LanguageConfig
from hf_attncal.training.presets import (
    adapter_defaults,
    language_defaults,
    preset_names,
    read_preset,
    recurrent_defaults,
    translation_defaults,
)
from hf_attncal.training.summarization import SummarizationConfig
from hf_attncal.training.translation import TranslationConfig

JOBS = {
    "translation": TranslationConfig,
    "adapter": AdapterConfig,
    "aligner": AlignerConfig,
    "language": LanguageConfig,
    "summarization": SummarizationConfig,
}
PAIRS = 3000
FITTED = {
    "translation": translation_defaults,
    "adapter": adapter_defaults,
    "language": language_defaults,
    "summarization": recurrent_defaults,
}
fitted = pytest.mark.parametrize(("job", "defaults"), FITTED.items())


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The section `data` of a run with so many pairs."""
    folder = tmp_path_factory.mktemp("text")
    for side in ("en", "de"):
        (folder / side).write_text("a word\n" * PAIRS, encoding="utf-8")
    return {"train": {"source": str(folder / "en"), "target": str(folder / "de")}}


def made(job, data, **values):
    if job == "language":
        data = {split: {"text": files["source"]} for split, files in data.items()}
    return JOBS[job].make({"preset": "small", "data": data} | values)


@pytest.mark.parametrize(("job", "name"), [(job, name) for job in JOBS for name in preset_names(job)])
def test_every_preset_makes_a_run(job, name, data, tmp_path):
    config = made(job, data, preset=name, training={"output_dir": str(tmp_path)})
    assert config.preset == name
    assert config.arguments().output_dir == str(tmp_path)


def test_every_job_has_presets():
    assert {job: preset_names(job) for job in JOBS} == {
        "translation": ("base", "small"),
        "adapter": ("base", "probe", "small"),
        "aligner": ("hmm", "small"),
        "language": ("small",),
        "summarization": ("small",),
    }


@fitted
def test_the_small_preset_fits_the_text(job, defaults, data):
    config = made(job, data)
    for key, value in defaults(PAIRS)["training"].items():
        assert config.training[key] == value
    (wanted,) = read_preset(job, "small")["data"].values()
    assert config.data.held_out == wanted > 0


@fitted
def test_another_number_of_steps_changes_all_that_follows_from_it(job, defaults, data):
    asked = made(job, data, training={"max_steps": 80, "learning_rate": 3e-4})
    assert asked.training["learning_rate"] == 3e-4
    for key in ("max_steps", "warmup_steps", "eval_steps", "save_steps"):
        assert asked.training[key] == defaults(PAIRS, 80)["training"][key]


def test_a_probe_changes_nothing_and_translates_nothing(data):
    """It observes; there is no dev text to translate."""
    probe = made("adapter", data, preset="probe")
    assert (probe.adapter["calibration"], probe.adapter["observe"]) == ("fixed", True)
    assert probe.data.held_out == 0
    assert (
        made("adapter", data, preset="probe").training["max_steps"] == adapter_defaults(PAIRS)["training"]["max_steps"]
    )


def test_the_first_pairs_are_the_amount_of_text(data):
    config = made("translation", data | {"train_pairs": 1000})
    assert config.training["max_steps"] == translation_defaults(1000)["training"]["max_steps"]


def test_passes_over_the_text_have_shares_of_steps(data):
    training = made("translation", data, training={"num_train_epochs": 2}).training
    assert "max_steps" not in training
    assert training["warmup_steps"] == 1 / 8
    assert all(0 < training[name] < 1 for name in ("eval_steps", "save_steps", "logging_steps"))


def test_given_settings_win(data):
    config = made("translation", data, model={"calibration": None, "d_model": 32}, tokenizer={"vocab_size": 77})
    assert (config.model["calibration"], config.model["d_model"], config.tokenizer.vocab_size) == (None, 32, 77)
    assert "calibration" not in made("translation", data).model
    assert made("adapter", data).adapter["calibration"] == "gated"


@pytest.mark.parametrize("job", ["translation", "summarization"])
def test_a_preset_has_the_sizes_of_its_backbone(job, data):
    recurrent = made(job, data, model={"backbone": "luong"})
    assert recurrent.model == {"backbone": "luong"} | recurrent_defaults(PAIRS)["model"]
    for backbone in ("marian", "bart"):
        assert made(job, data, model={"backbone": backbone}).model["encoder_attention_heads"] == 4
    with pytest.raises(ValueError, match=r"`preset`.*'small'.*got 'base'"):
        made(job, data, model={"backbone": "luong"}, preset="base")


@pytest.mark.parametrize(("job", "section"), [("translation", "model"), ("adapter", "adapter")])
def test_annealing_ends_within_the_run(job, section, data):
    annealed = {section: {"calibration": "annealed"}}
    assert getattr(made(job, data, training={"max_steps": 90}, **annealed), section)["annealing_steps"] == 60
    given = {section: {"calibration": "annealed", "annealing_steps": 7}}
    assert getattr(made(job, data, **given), section)["annealing_steps"] == 7
    assert "annealing_steps" not in getattr(JOBS[job].make(annealed), section)  # a file says all itself


@pytest.mark.parametrize("job", ["translation", "summarization"])
def test_the_mask_network_waits_for_the_attention(job, data):
    model = {"calibration": "gated", "backbone": "marian"}
    assert made(job, data, model=model).model["mask_cost"] == 0.1
    assert made(job, data, model=model | {"mask_cost": None}).model["mask_cost"] is None
    assert "mask_cost" not in made(job, data, model=model | {"calibration": None}).model
    assert "mask_cost" not in JOBS[job].make({"model": model}).model  # a file says all itself


def test_a_leaky_adapter_starts_where_it_can_learn(data):
    assert made("adapter", data, adapter={"leaky": True}).adapter["null_mass"] == 0.02
    assert made("adapter", data, adapter={"leaky": True, "null_mass": 0.1}).adapter["null_mass"] == 0.1


def test_a_model_to_go_on_from_keeps_its_own_size(data, tmp_path):
    TranslationConfig.make({})  # registers the Auto classes
    from hf_attncal import AttnCalMarianConfig

    AttnCalMarianConfig(d_model=24).save_pretrained(tmp_path)
    config = made("translation", data, model={"init_from": str(tmp_path)})
    assert config.model == {"backbone": "marian", "init_from": str(tmp_path)}


@pytest.mark.parametrize(
    ("job", "values", "message"),
    [
        ("translation", {"preset": "large"}, r"`preset` must be one of \('base', 'small'\), got 'large'"),
        ("aligner", {"preset": "large"}, r"`preset` must be one of \('hmm', 'small'\), got 'large'"),
        ("aligner", {"model": {"size": "hmm"}}, r"`model.size` must be `preset` \(small\) or left out, got 'hmm'"),
        ("translation", {"data": {}}, "`data.train` must name the text to train on, got none"),
        ("translation", {"data": {"train": {"source": "x"}}}, "`data.train` must name `source` and `target`"),
        ("translation", {"training": {"max_steps": "many"}}, "`training.max_steps` must be an integer, got 'many'"),
        ("translation", {"minutes": 0}, "`minutes` must be a number from 0.01 to 525600 or null, got 0."),
        ("translation", {"minutes": "ten"}, "`minutes` must be a number from 0.01 to 525600 or null, got 'ten'"),
    ],
)
def test_impossible_settings_are_named(job, values, message, data):
    with pytest.raises(ValueError, match=message):
        JOBS[job].make({"preset": "small", "data": data} | values)


def test_one_file_is_not_two_languages(data):
    source = data["train"]["source"]
    with pytest.raises(ValueError, match=rf"`data.train`.*got {source}"):
        TranslationConfig.make({"data": {"train": {"source": source, "target": source}}})


def test_a_short_run_of_an_aligner_has_short_warm_ups():
    short, usual = (AlignerConfig.make({"training": given}).training for given in ({"max_steps": 80}, {}))
    assert (short["warmup_steps"], short["agreement_warmup_steps"]) == (10, 20)
    long = AlignerConfig.make({"training": {"max_steps": 10**6}}).training
    for name in ("warmup_steps", "agreement_warmup_steps"):
        assert long[name] == usual[name] > short[name]


@pytest.mark.parametrize("job", ["translation", "language"])
def test_a_discrete_transformer_is_hardened(job, tmp_path):
    """A preset does it in two thirds of the steps, for any number of steps; a given setting stays."""
    text = tmp_path / "text"
    text.write_text("a b c\n" * 50, encoding="utf-8")
    other = tmp_path / "other"
    other.write_text("d e f\n" * 50, encoding="utf-8")
    data = {"train": {"text": str(text)} if job == "language" else {"source": str(text), "target": str(other)}}
    model = {} if job == "language" else {"backbone": "discrete_transformer"}

    def made(**settings):
        values = {"preset": "small", "data": data, "model": model | settings, "training": {"max_steps": 300}}
        return {"translation": TranslationConfig, "language": LanguageConfig}[job].make(values)

    found = made()
    assert found.model["gumbel_straight_through_steps"] == 200
    assert found.model["gumbel_noise"] == 0.0
    assert made(gumbel_noise=1.0).model["gumbel_noise"] == 1.0
    assert "gumbel_straight_through_steps" not in made(gumbel_straight_through=False).model
    assert "relative_positions" not in made(hard_attention=False).model
