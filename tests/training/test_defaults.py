"""Settings by the amount of text: what rises rises, and every run that they make can work."""

import itertools

import pytest

from hf_attncal.training.adapter import AdapterConfig
from hf_attncal.training.presets import (
    MAX_PAIRS,
    MIN_PAIRS,
    adapter_defaults,
    recurrent_defaults,
    translation_defaults,
)
from hf_attncal.training.sections import merge_settings
from hf_attncal.training.summarization import SummarizationConfig
from hf_attncal.training.translation import TranslationConfig

PAIRS = [1, 500, 2000, 3000, 5000, 10_000, 20_000, 29_000, 50_000, 100_000, 300_000, 1_000_000, 2_000_000, 10**8]
RISING = {
    "tokenizer": ("vocab_size",),
    "model": ("d_model", "encoder_layers", "decoder_layers"),
    "training": ("max_steps", "tokens_per_batch"),
}
JOBS = {"translation": translation_defaults, "recurrent": recurrent_defaults, "adapter": adapter_defaults}


@pytest.mark.parametrize("defaults", JOBS.values(), ids=JOBS)
def test_more_text_never_makes_less_of_a_run(defaults):
    for fewer, more in itertools.pairwise(map(defaults, PAIRS)):
        for section, keys in RISING.items():
            for key in keys:
                if key in fewer.get(section, {}):
                    assert fewer[section][key] <= more[section][key]
    least, most = defaults(MIN_PAIRS), defaults(MAX_PAIRS)
    assert least["training"]["max_steps"] < most["training"]["max_steps"]
    assert defaults(1) == least
    assert defaults(10 * MAX_PAIRS) == most


@pytest.mark.parametrize("defaults", JOBS.values(), ids=JOBS)
@pytest.mark.parametrize("pairs", PAIRS)
@pytest.mark.parametrize("steps", [None, 1, 7, 100, 999])
def test_a_run_warms_up_evaluates_and_saves_before_it_ends(defaults, pairs, steps):
    settings = defaults(pairs, steps)
    training = settings["training"]
    length = training["max_steps"]
    assert steps is None or length == steps
    assert training["warmup_steps"] < length
    assert 1 <= training["eval_steps"] <= length
    assert 1 <= training["save_steps"] <= length
    assert 1 <= training["logging_steps"] <= length
    if length >= 100:
        assert training["warmup_steps"] >= length // 10
        # What is averaged is of the second half of the run.
        assert settings.get("average_last", 1) * training["save_steps"] <= length // 2


@pytest.mark.parametrize("pairs", PAIRS)
def test_the_jobs_take_them(pairs):
    config = TranslationConfig.make(translation_defaults(pairs))
    arguments = config.arguments()
    assert arguments.max_steps == config.training["max_steps"]
    assert config.model["d_model"] % config.model["encoder_attention_heads"] == 0
    for job in (TranslationConfig, SummarizationConfig):
        recurrent = recurrent_defaults(pairs)
        assert job.make(merge_settings(recurrent, {"model": {"backbone": "luong"}})).model["d_model"] == 256
    adapter = adapter_defaults(pairs)
    adapter["model"]["checkpoint"] = "folder"
    assert AdapterConfig.make(adapter).arguments().learning_rate == 1e-3


@pytest.mark.parametrize("defaults", JOBS.values(), ids=JOBS)
def test_impossible_numbers_are_refused(defaults):
    with pytest.raises(ValueError, match=r"`pairs`.*1.*got 0"):
        defaults(0)
    with pytest.raises(ValueError, match=r"`steps`.*1.*got 0"):
        defaults(2000, 0)
