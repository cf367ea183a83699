"""The table of what lies in a folder: every save of ours is in it, and whoever asks reads it."""

from pathlib import Path

import peft
import pytest
import torch
from aligner_helpers import PAIRS, counting_aligner
from helpers import assert_layouts_know
from hub_helpers import KINDS, saved

from hf_attncal.adapters.checkpoints import save_adapter
from hf_attncal.adapters.configuration import AttentionCalibrationConfig
from hf_attncal.alignment.probabilities import LinkProbabilities, Platt
from hf_attncal.alignment.seq2seq import Seq2SeqAttention
from hf_attncal.families import FAMILIES
from hf_attncal.hub.model_cards import write_section
from hf_attncal.hub.publication import publish_folder
from hf_attncal.inference.files import check_model_files
from hf_attncal.inference.opening import check_name
from hf_attncal.layouts import LAYOUTS, Fate, fate_of, file_of, files, kind_of_folder
from hf_attncal.metrics.probabilities import probability_score

OUR_NAME = "someone/model"


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# ---- what we save ----


def test_every_family_is_saved_as_in_the_table(tmp_path):
    assert {config.model_type for _, config in KINDS.values()} == set(FAMILIES)
    for kind in KINDS:
        saved(kind, tmp_path / kind)
        assert_layouts_know(tmp_path / kind)
        assert kind_of_folder(tmp_path / kind) == "model"
        assert LAYOUTS["model"].problems(tmp_path / kind) == []
        assert {fate_of(name) for name in names_in(tmp_path / kind)} == {Fate.HUB}


@pytest.mark.parametrize("settings", [AttentionCalibrationConfig(), peft.LoraConfig(r=2, target_modules=["q_proj"])])
def test_an_adapter_is_saved_as_in_the_table(settings, tmp_path):
    model, _, _ = saved("marian", tmp_path / "base")
    if isinstance(settings, AttentionCalibrationConfig):
        model = type(model)(type(model.config)(**model.config.to_dict() | {"calibration": None}))
    model = peft.get_peft_model(model, settings)
    model.save_pretrained(tmp_path / "peft")
    save_adapter(model, tmp_path / "ours", adapter_name="default", dtype=torch.bfloat16)
    for folder in (tmp_path / "peft", tmp_path / "ours"):
        assert_layouts_know(folder)
        assert kind_of_folder(folder) == "adapter"
        assert LAYOUTS["adapter"].problems(folder) == []


def test_an_aligner_with_all_its_learned_files(tmp_path):
    aligner = counting_aligner(PAIRS)
    for folder in (tmp_path, tmp_path / "hmm"):
        aligner.model.save_pretrained(folder)
        aligner.tokenizer.save_pretrained(folder)
    LinkProbabilities({"harmonic": Platt(1.0, 0.0)}, pairs=2).save(tmp_path)
    Seq2SeqAttention(layer=1).save(tmp_path)
    score = probability_score([[0.2, 0.9]], [[False, True]])
    write_section(tmp_path, "link_probabilities", before=score, after=score, measured_on="two links")
    assert_layouts_know(tmp_path)
    beside = {file.name for file in files("aligner")}
    assert beside - names_in(tmp_path) == {"check.json", "times.json"}  # `tests/checking` and `tests/speech` learn one


# ---- what is read of the table ----


def test_the_first_row_that_fits_a_name_counts():
    assert file_of("vocab.txt").fate is Fate.HUB
    assert file_of("vocab.secret").fate is Fate.REFUSED
    assert file_of("training_args.bin").fate is Fate.STAYS
    assert file_of("pytorch_model.bin").fate is Fate.REFUSED
    assert file_of("train.de") is None
    assert fate_of("train.de") is Fate.REFUSED
    assert [fate_of(name) for name in ("checkpoint-12", "unfinished", "hmm")] == [Fate.STAYS] * 3


def test_a_kind_is_recognised_by_its_files(tmp_path):
    assert kind_of_folder(tmp_path) is None
    marks = {
        "run.json": "run",
        "tokenizer.json": "tokenizer",
        "adapter_config.json": "adapter",
        "config.json": "model",
    }
    for name, kind in marks.items():  # each goes before those before it
        (tmp_path / name).write_text("{}")
        assert kind_of_folder(tmp_path) == kind


def test_files_that_must_be_objects_are_checked(tmp_path):
    for file in files():
        if file.is_object:
            (tmp_path / file.name).write_text("[]")
            with pytest.raises(ValueError, match=f"{file.name} must hold a JSON object"):
                check_model_files(tmp_path)
            (tmp_path / file.name).unlink()


def test_a_folder_without_any_mark_is_no_model(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(FileNotFoundError, match=r"without config\.json or adapter_config\.json"):
        check_name(tmp_path)


def test_reading_settings_are_published_and_an_inner_model_is_not(tmp_path):
    folder = tmp_path / "model"
    saved("marian", folder)
    Seq2SeqAttention(layer=1).save(folder)
    options = {"dry_run": True, "try_loading": False}
    assert "alignment.json" in publish_folder(folder, OUR_NAME, **options).files
    saved("bart", folder / "full")
    assert publish_folder(folder, OUR_NAME, **options).left_out == ("full",)
