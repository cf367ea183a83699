"""An aligner that counts, loaded without transformers: what the ordinary way gives, or nothing."""

import json
import shutil
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.alignment.count_learner import CountLearner
from hf_attncal.alignment.probabilities import LinkProbabilities, Platt
from hf_attncal.alignment.statistical import plain_aligner
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.models.configuration_hmm_align import HMMAlignConfig
from hf_attncal.models.hmm_tables import CountFields, HMMTables
from hf_attncal.models.modeling_hmm_align import HMMAlignModel

ENGLISH = ["the old house", "a house", "the old", "an old house is a house", "old, old house", "don't </s> 1,000"] * 4
GERMAN = ["das alte Haus", "ein Haus", "das alte", "ein altes Haus ist ein Haus", "altes, Haus", "nicht </s> 1000"] * 4
# Special tokens as text, the mark that stands for spaces, unknown characters, folded ones, nothing, a long line.
STRANGE = [
    ("the </s> house <pad>", "das </s> Haus <unk>"),
    ("the▁old house ▁", "das ▁ alte▁Haus"),
    ("𝔘𝔫known \u00a0 “house” ﬁ", "日本 „Haus‟ É"),
    ("THE Old\thouse", "DAS   alte Haus"),
    ("", "Haus"),
    ("the old house " * 30, "das alte Haus " * 29),
    ("don't wait for the house, John's", "l'homme wartet nicht"),
]


@pytest.fixture(scope="module", params=[{}, {"lowercase": True, "tokenize": True}, {"fold_words": True}], ids=str)
def saved(request, tmp_path_factory) -> Path:
    tokenizer = train_bpe_tokenizer(ENGLISH + GERMAN, vocab_size=90)
    config = HMMAlignConfig(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_token_id, **request.param)
    model = HMMAlignModel(config).eval()
    CountLearner(model, *(tokenizer(side, add_special_tokens=False)["input_ids"] for side in (ENGLISH, GERMAN))).run()
    folder = tmp_path_factory.mktemp("aligner")
    for part in (model, tokenizer):
        part.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path, saved) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "aligner"))


@pytest.mark.parametrize("calibrated", [False, True])
def test_it_aligns_as_the_ordinary_aligner_does(folder, calibrated):
    if calibrated:
        LinkProbabilities({"harmonic": Platt(0.5, 0.2)}, 30).save(folder)
    plain, ordinary = plain_aligner(folder), WordAligner.from_pretrained(folder, device="cpu")
    assert type(plain.model) is HMMTables
    assert type(ordinary.model) is HMMAlignModel
    pairs = [*zip(ENGLISH, GERMAN, strict=True), *STRANGE]
    for options in ({}, {"spans": True, "threshold": 0.2}, {"words": "spaces", "tokenize": True}):
        found = plain.align(pairs, **options)
        assert found == ordinary.align(pairs, **options)
        assert found[0].calibrated == calibrated
        assert sum(len(pair.links) for pair in found) > 60


def test_the_fields_are_those_of_the_configuration(saved):
    types = {field.name for field in fields(CountFields)}
    defaults = HMMAlignConfig()
    assert vars(CountFields()) == {name: getattr(defaults, name) for name in types}
    assert CountFields.model_type == HMMAlignConfig.model_type
    assert plain_aligner(saved).model.config == CountFields(
        **{name: value for name, value in json.loads((saved / "config.json").read_text()).items() if name in types}
    )


def changed_config(folder: Path, **changes) -> None:
    path = folder / "config.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in values.items() if value != "left out"}))


def changed_tokenizer(folder: Path, file: str, **changes) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def changed_tables(folder: Path, **changes) -> None:
    path = folder / "model.safetensors"
    tensors = {name: change(tensor) for name, tensor in load_file(path).items() if (change := changes.get(name, id_))}
    save_file(tensors, path, metadata={"format": "pt"})


def id_(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


CHANGES = {
    "another kind": lambda folder: changed_config(folder, model_type="mask_align"),
    "a field that is missing": lambda folder: changed_config(folder, max_jump="left out"),
    "a field too much": lambda folder: changed_config(folder, uniform_jmp=0.1),
    "a value out of range": lambda folder: changed_config(folder, uniform_jump=1.5),
    "a value of another type": lambda folder: changed_config(folder, lowercase=1),
    "a truth for a number": lambda folder: changed_config(folder, uniform_jump=True),
    "no such way to merge": lambda folder: changed_config(folder, symmetrization="none"),
    "a token that is none": lambda folder: changed_config(folder, eos_token_id=10**6),
    "another precision": lambda folder: changed_config(folder, dtype="bfloat16"),
    "settings": lambda folder: (folder / "alignment.json").write_text("{}"),
    "damaged JSON": lambda folder: (folder / "config.json").write_text("{"),
    "no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "another tokenizer": lambda folder: changed_tokenizer(folder, "tokenizer_config.json", tokenizer_class="Marian"),
    "special tokens": lambda folder: changed_tokenizer(folder, "tokenizer_config.json", split_special_tokens=False),
    "truncation": lambda folder: changed_tokenizer(
        folder,
        "tokenizer.json",
        truncation={"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
    ),
    "no number": lambda folder: changed_tables(folder, counts=lambda table: table * float("nan")),
    "another shape": lambda folder: changed_tables(folder, source_counts=lambda table: table[1:].clone()),
    "a table that is missing": lambda folder: changed_tables(folder, forward_jumps=None),
    "another type": lambda folder: changed_tables(folder, counts=lambda table: table.half()),
    "damaged tables": lambda folder: (folder / "model.safetensors").write_bytes(b"no tables"),
    "damaged probabilities": lambda folder: (folder / "link_probabilities.json").write_text("[]"),
    "no folder": shutil.rmtree,
}


@pytest.mark.parametrize("saved", [{}], indirect=True, ids=[""])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_files_need_transformers(folder, change):
    assert plain_aligner(folder) is not None
    change(folder)
    assert plain_aligner(folder) is None
