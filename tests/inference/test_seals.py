"""Files learned for a model fit only that model: changes that matter, changes that do not, and the messages."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from aligner_helpers import PAIRS, counting_aligner, tiny_mask_align
from helpers import FAMILIES, scatter
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, randomized, sized
from transformers import AutoModel, AutoTokenizer, BertConfig, BertForMaskedLM

from hf_attncal.alignment import Seq2SeqAttention, WordAligner
from hf_attncal.alignment.probabilities import LinkProbabilities, Platt, saved_probabilities
from hf_attncal.checking.checker import open_checker
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError

GIVEN = LinkProbabilities({"harmonic": Platt(1.0, 0.0)}, pairs=2)
FILE = "link_probabilities.json"


def saved(folder, model, tokenizer, **options):
    for part in (model, tokenizer):
        part.save_pretrained(folder, **options)
    return folder


def bert():
    torch.manual_seed(3)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    return scattered(BertForMaskedLM(BertConfig(vocab_size=len(bpe_tokenizer()), **sizes)))


def scattered(model):
    scatter(model, 0.3)
    return model


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of an aligner that counts, a network of ours, and an encoder of transformers with a head."""
    folder, tokenizer = tmp_path_factory.mktemp("models"), bpe_tokenizer()
    counts = counting_aligner(PAIRS)
    saved(folder / "counts", counts.model, counts.tokenizer)
    saved(folder / "network", tiny_mask_align(tokenizer), tokenizer)
    saved(folder / "encoder", bert(), tokenizer)
    for name in ("counts", "network"):
        GIVEN.save(folder / name)
    Seq2SeqAttention(layer=1).save(folder / "encoder")
    return folder


@pytest.fixture
def model(models, tmp_path, request):
    return shutil.copytree(models / request.param, tmp_path / "model")


def auto(folder):
    return AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


EVERY = pytest.mark.parametrize("model", ["counts", "network", "encoder"], indirect=True)


def read(folder):
    return saved_probabilities(folder) or Seq2SeqAttention.load(folder)


# ---- the same model ----


@pytest.mark.parametrize(
    ("model", "shards"), [("counts", "50GB"), ("network", "1KB"), ("encoder", "1KB")], indirect=["model"]
)
def test_a_model_that_is_saved_again_keeps_its_seal(model, tmp_path, shards):
    """Saved by its class or another, in shards, with a tokenizer that has padded, a card and another version."""
    again, tokenizer = auto(model)
    tokenizer(SOURCES, padding=True, truncation=True, max_length=5)
    anew = saved(tmp_path / "anew", again, tokenizer, max_shard_size=shards)
    config = json.loads((anew / "config.json").read_text())
    written = {"transformers_version": "9.0", "_name_or_path": "/elsewhere", **dict(reversed(config.items()))}
    (anew / "config.json").write_text(json.dumps(written))
    (anew / "README.md").write_text("# A card\n")
    for file in (FILE, "alignment.json"):
        if (model / file).exists():
            shutil.copy(model / file, anew)
    assert len(list(anew.glob("*.safetensors"))) > (shards == "1KB")
    assert read(anew) == read(model) is not None


@EVERY
def test_a_model_in_the_cache_of_the_hub_keeps_its_seal(model, tmp_path):
    cached = tmp_path / "snapshots" / "abc"
    cached.mkdir(parents=True)
    for number, file in enumerate(model.iterdir()):
        file.rename(tmp_path / f"blob{number}")
        (cached / file.name).symlink_to(tmp_path / f"blob{number}")
    assert read(cached) is not None


@pytest.mark.parametrize("model", ["counts"], indirect=True)
def test_both_ways_to_start_an_aligner_that_counts_read_it(model):
    from hf_attncal.alignment.statistical import plain_aligner

    assert plain_aligner(model).probabilities == WordAligner.from_pretrained(model).probabilities == GIVEN


# ---- another model ----


def other_weights(folder):
    weights = load_file(folder / "model.safetensors")
    name = max(weights, key=lambda name: weights[name].numel() * weights[name].is_floating_point())
    weights[name].view(-1)[3] += 0.25
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def other_precision(folder):
    weights = load_file(folder / "model.safetensors")
    halved = {name: value.half() if value.is_floating_point() else value for name, value in weights.items()}
    save_file(halved, folder / "model.safetensors", metadata={"format": "pt"})


def other_tokenizer(folder):
    train_bpe_tokenizer([*TARGETS, *SOURCES, "other words of another text"], 90).save_pretrained(folder)


OTHERS = {"weights": other_weights, "different weights": other_precision, "tokenizer": other_tokenizer}


@pytest.mark.parametrize(
    ("model", "part"), [*zip(["counts", "network", "encoder"], OTHERS, strict=True)], indirect=["model"]
)
def test_another_model_is_refused(model, part):
    OTHERS[part](model)
    file = FILE if (model / FILE).exists() else "alignment.json"
    with pytest.raises(ValueError, match=f"{file} cannot be used: it was learned for another model.*{part}"):
        read(model)


def test_files_of_the_aligner_before_its_adaptation_are_refused(models, tmp_path):
    folder = shutil.copytree(models / "counts", tmp_path / "model")
    aligner = WordAligner.from_pretrained(folder, device="cpu")
    aligner.adapt(PAIRS, weight=1.0)
    saved(folder, aligner.model, aligner.tokenizer)  # a command refuses that
    with pytest.raises(ValueError, match=f"{FILE} cannot be used: it was learned for another model"):
        WordAligner.from_pretrained(folder, device="cpu")


def test_the_reading_settings_are_part_of_the_fingerprint(models, tmp_path):
    folder = shutil.copytree(models / "encoder", tmp_path / "model")
    LinkProbabilities({"intersection": Platt(1.0, 0.0)}, 2, Seq2SeqAttention(layer=1).to_dict()).save(folder)
    assert saved_probabilities(folder)
    Seq2SeqAttention(layer=2).save(folder)
    with pytest.raises(ValueError, match=r"different alignment.json"):
        saved_probabilities(folder)


def test_a_file_for_a_model_elsewhere_names_that_model(models, tmp_path):
    """`attncal align select HUB_NAME --output FOLDER`: the model may be put there later, and no other."""
    Seq2SeqAttention(layer=2).save(tmp_path, models / "encoder")
    assert Seq2SeqAttention.load(tmp_path).layer == 2
    for file in (models / "encoder").glob("*[!t].[jst]*"):
        if file.name != "alignment.json":
            shutil.copy(file, tmp_path)
    assert Seq2SeqAttention.load(tmp_path).layer == 2
    other_weights(tmp_path)
    with pytest.raises(ValueError, match="different weights"):
        Seq2SeqAttention.load(tmp_path)


# ---- the file itself ----


def changed(path, **entries):
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


@pytest.mark.parametrize("model", ["network"], indirect=True)
@pytest.mark.parametrize("seal", [None, {}, {"values": "", "model": {}}])
def test_a_seal_that_is_none(model, seal):
    changed(model / FILE, seal=seal)
    with pytest.raises(ValueError, match=r"`seal` is missing|it has been changed"):
        read(model)


# ---- weights ----


# ---- adapters, and counts beside a network ----


def test_an_adapter_is_one_of_its_base_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the base model of the adapter is called "base"
    stock_config, stock_model, *_ = FAMILIES["marian"]
    tokenizer = bpe_tokenizer()
    saved("base", randomized(stock_model(stock_config(**sized(tokenizer)))), tokenizer)
    lora = LoraConfig(r=2, target_modules=["q_proj", "k_proj"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM")
    get_peft_model(stock_model.from_pretrained("base"), lora).save_pretrained("adapter")
    Seq2SeqAttention(0).save("adapter")
    assert Seq2SeqAttention.load("adapter") == Seq2SeqAttention(0)
    Path("base").rename("elsewhere")
    saved_config = json.loads(Path("adapter/adapter_config.json").read_text())
    changed(Path("adapter/adapter_config.json"), target_modules=saved_config["target_modules"][::-1], new_option=None)
    changed(Path("adapter/adapter_config.json"), base_model_name_or_path="elsewhere", peft_version="99")
    assert Seq2SeqAttention.load("adapter") == Seq2SeqAttention(0)
    other_weights(Path("elsewhere"))
    with pytest.raises(ValueError, match=r"not for adapter \(different base model\)"):
        Seq2SeqAttention.load("adapter")


def test_an_adapted_aligner_is_not_that_of_its_folder(models):
    aligner = WordAligner.from_pretrained(models / "counts", device="cpu")
    assert aligner.model.config.name_or_path == str(models / "counts")
    aligner.adapt(PAIRS, weight=1.0)
    with pytest.raises(CommandError, match="an aligner made in memory"):
        open_checker(aligner, Running())
