"""Parts that all jobs share."""

from pathlib import Path
from pkgutil import resolve_name

import pytest
import train as script

from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob
from hf_attncal.command_table import JOBS
from hf_attncal.training.job import Job
from hf_attncal.training.settings import Settings
from hf_attncal.training.translation import TranslationConfig


@pytest.fixture
def text(tmp_path) -> Path:
    words = ["a cat", "the dog sees it", "we all sing along", "birds fly"]
    for side in ("en", "de"):
        (tmp_path / f"train.{side}").write_text("".join(f"{words[n % 4]} {n % 7}\n" for n in range(40)))
    return tmp_path


def settings(text: Path, **more) -> dict:
    return {
        "data": {"root": str(text), "train": {"source": "train.en", "target": "train.de"}, "held_out_pairs": 4},
        "tokenizer": {"vocab_size": 40},
        "training": {"output_dir": str(text / "run"), "max_steps": 2, "report_to": "none", "eval_strategy": "no"},
        **more,
    }


def test_every_job_has_the_name_of_its_settings():
    for name, where in JOBS.items():
        job = resolve_name(where)
        assert issubclass(job, Job)
        assert issubclass(job.settings, Settings)
        assert job.settings.job == name


def test_settings_without_a_job_get_a_remedy(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("training: {max_steps: 3}\n")
    told = f"`job` must be one of translation, summarization, adapter, aligner, language, got None. Add it to {file} "
    with pytest.raises(ValueError, match=told.replace(".", r"\.")):
        script.main(["--config", str(file)])


def test_settings_of_another_job_are_refused():
    with pytest.raises(ValueError, match=r"`job`.*got 'aligner'"):
        TranslationConfig.make({"job": "aligner"})
    assert TranslationConfig.make({"job": "translation"}).published() == TranslationConfig.make({}).published()


def test_an_annotated_pair_that_is_too_long_is_refused(text):
    """Before anything is trained; the line and the file are named."""
    for side in ("en", "de"):
        (text / f"dev.{side}").write_text("a b\n" + "word " * 2001 + "\n")
    (text / "dev.align").write_text("0-0\n0-0\n")
    values = settings(text)
    values["data"]["dev"] = {"source": "dev.en", "target": "dev.de", "gold": "dev.align"}
    with pytest.raises(ValueError, match=r"line 2 .*dev\.en.*`data\.dev`.*10005"):
        AlignerJob.train(AlignerConfig.make(values))
    assert not (text / "run").exists()


def test_a_run_of_no_steps_leaves_nothing(text):
    values = settings(text)
    values["training"]["max_steps"] = 0
    with pytest.raises(ValueError, match=r"`training\.max_steps`.*1"):
        AlignerJob.train(AlignerConfig.make(values))
    assert not (text / "run").exists()
