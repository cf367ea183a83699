"""A language model from lines of text to a saved, measured model; resumed, and in two processes.

This file is both the test and, run as a script by `torch.distributed.run`, each of the two processes.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from english_german import generate_split as generate_pairs
from helpers import begun
from stack_helpers import write_sequences
from stack_sequences import entropy_per_symbol, generate_stack_split
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_attncal.data.collators import LanguageCollator
from hf_attncal.metrics.probabilities import perplexity
from hf_attncal.training.language import sequence_sums

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
import train as script

LENGTH = 10
RUNNING = {
    "max_steps": 4,
    "per_device_train_batch_size": 8,
    "learning_rate": 1e-2,
    "logging_steps": 1,
    "save_steps": 1,
    "save_total_limit": 9,
    "bf16": False,
    "disable_tqdm": True,
    "report_to": "none",
}
MODEL = {
    "d_model": 16,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "scale_embedding": True,
    "dropout": 0.0,
    "receptive_field_penalty": 0.1,
}


def lay_out(folder: Path) -> None:
    """Sequences of the stack language, and English sentences, whose lengths differ."""
    split = generate_stack_split(60, 20, 20, length=LENGTH, max_depth=2)
    sentences = generate_pairs(60, 20, 20, seed=5)
    for name, other in zip(split._fields, ("train", "valid", "test"), strict=True):
        write_sequences(getattr(split, name), folder / f"{name}.txt")
        write_sequences([" ".join(pair.source) for pair in getattr(sentences, other)], folder / f"{name}.en")


@pytest.fixture
def text(tmp_path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    lay_out(folder)
    return folder


def arguments(text: Path, suffix: str = "txt", **model) -> list[str]:
    """Of a run of four steps in the folder `run` beside the text."""
    values = {
        "data": {name: {"text": f"{name}.{suffix}"} for name in ("train", "dev", "test")},
        "model": MODEL | model,
        "training": {"output_dir": str(text.parent / "run"), **RUNNING},
    }
    values["data"]["max_length"] = LENGTH + 1 if suffix == "txt" else 64
    values["tokenizer"] = {"kind": "words"} if suffix == "txt" else {"vocab_size": 150}
    values["data"]["end_of_sequence"] = suffix != "txt"
    path = text / f"{suffix}.yaml"
    path.write_text(yaml.safe_dump({"job": "language"} | values), encoding="utf-8")
    return ["--config", str(path), "--data", str(text)]


def test_text_to_measured_model(text, tmp_path):
    """The results have all counts, and can be recomputed from the saved model."""
    evaluating = ["training.eval_strategy=steps", "training.eval_steps=2", "average_last=2", "tokenizer.vocab_size=99"]
    script.main([*arguments(text), *evaluating])
    run = tmp_path / "run"
    stored = json.loads((run / "results.json").read_text(encoding="utf-8"))
    assert {name: kept["kept"] for name, kept in stored["sequences"].items()} == {"train": 60, "dev": 20, "test": 20}
    assert stored["averaged_checkpoints"] == ["checkpoint-3", "checkpoint-4"]
    evaluations = [entry for entry in stored["log_history"] if "eval_perplexity" in entry]
    assert [entry["step"] for entry in evaluations] == [2, 4]
    assert evaluations[0]["eval_perplexity"] == pytest.approx(np.exp(evaluations[0]["eval_loss"]))
    assert sum({"lm_loss", "receptive_field_size"} <= entry.keys() for entry in stored["log_history"]) == 4
    assert str(tmp_path) not in (run / "results.json").read_text(encoding="utf-8")

    model, tokenizer = AutoModelForCausalLM.from_pretrained(run).eval(), AutoTokenizer.from_pretrained(run)
    assert len(tokenizer) == model.config.vocab_size == 8  # 5 symbols; no end
    assert model.generation_config.eos_token_id is None
    batch = tokenizer((text / "test.txt").read_text().splitlines(), return_tensors="pt")
    assert batch["input_ids"].shape == (20, LENGTH + 1)
    with torch.no_grad():
        outputs = model(**batch, output_receptive_fields=True)
    predicted = outputs.logits[:, :-1].log_softmax(-1).gather(2, batch["input_ids"][:, 1:, None])
    test = stored["test"]
    assert test["tokens"] == 20 * LENGTH
    assert test["cross_entropy"] == pytest.approx(-predicted.mean().item(), abs=1e-5)
    assert test["perplexity"] == pytest.approx(np.exp(test["cross_entropy"]))
    assert outputs.target_receptive_fields.dtype == torch.bool
    assert test["receptive_field_size"] == pytest.approx(
        outputs.target_receptive_fields[:, :-1].sum(-1).double().mean().item()
    )
    assert test["signature"].startswith("Perplexity|unit:words|end:excluded|unknown:0|n:20|version:")
    assert test["field_signature"].startswith("ReceptiveFieldSize|fields:chosen|n:20|")
    generated = model.generate(**tokenizer([""], return_tensors="pt"), max_new_tokens=LENGTH)
    assert generated.shape == (1, LENGTH + 1)


def test_it_learns(text, tmp_path):
    """The loss is below a unigram model's, close to the entropy of the language."""
    steps = ["training.max_steps=150", "training.save_strategy=no", "training.logging_steps=50"]
    results = script.main([*arguments(text, hard_attention=False, receptive_field_penalty=0.0), *steps])
    symbols = "".join((text / "train.txt").read_text().split())
    shares = np.array([symbols.count(symbol) for symbol in set(symbols)]) / len(symbols)
    unigram = -(shares * np.log(shares)).sum()
    assert entropy_per_symbol(LENGTH, 2) - 0.1 < results["test"]["cross_entropy"] < unigram - 0.3
    assert "fields:expected" in results["test"]["field_signature"]


def test_subwords_end_and_held_out_lines(text, tmp_path):
    options = ["data.dev=null", "data.test=null", "data.held_out_lines=5", "data.lowercase=true", "model.streams=2"]
    results = script.main([*arguments(text, "en"), *options])
    assert {name: kept["kept"] for name, kept in results["sequences"].items()} == {"train": 55, "dev": 5}
    assert "unit:bpe|end:counted" in results["dev"]["signature"]
    model, tokenizer = (kind.from_pretrained(tmp_path / "run") for kind in (AutoModelForCausalLM, AutoTokenizer))
    assert (model.config.streams, model.config.eos_token_id) == (2, tokenizer.eos_token_id)
    assert tokenizer("The")["input_ids"][0] == tokenizer.bos_token_id
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "A language model with hard attention in a syntactic and a semantic stream." in card
    assert "`train.en`: 55 sequences" in card
    assert "| perplexity on dev (held-out training text) |" in card


# ---- two processes ----

# Without noise: each process has random numbers of its own.
# By tokens, as the stock batches of sequences of two processes repeat some at the end of a text.
ALIKE = ["model.gumbel_noise=0", "training.eval_strategy=steps", "training.eval_steps=2", "training.optim=sgd"]
ALIKE += ["training.learning_rate=0.1", "training.tokens_per_batch=300"]


# ---- wrong input ----


def test_unreadable_text_and_missing_settings_are_reported(text, tmp_path):
    given = arguments(text)
    (text / "empty").write_text("\n \n")
    (text / "mark").write_text("( <s> )\n")
    wrong = {
        "data.train=null": "`data.train` must name the text to train on",
        "data.train.text=nothing": "Text file `.*nothing` does not exist",
        "data.train.text=empty": "`.*empty` is empty",
        "data.dev.text=empty": "`.*empty` is empty",
        "data.max_length=5": r"No sequence is left\. .*Dropped 60 with more than 5 tokens",
        "data.max_length=65": r"`data.max_length` must be at most `model.max_position_embeddings` \(64\), got 65",
        "data.test.text=mark": r"must not contain the special token '<s>', got '\( <s> \)'",
        "tokenizer.vocab_size=3": "`vocab_size` must be above the 3 special tokens, got 3",
    }
    for setting, message in wrong.items():
        with pytest.raises(ValueError, match=message):
            script.main([*given, setting])
        assert not begun(tmp_path / "run")


def test_lines_that_are_too_long_and_unknown_symbols_are_counted_and_reported(text, capsys):
    with (text / "dev.txt").open("a") as file:
        file.write("9 " * LENGTH + "\n" + "0 " * 40 + "\n\n")
    options = ["training.max_steps=1", "data.test=null"]
    with pytest.warns(UserWarning, match=r"Kept 21 of 23.*1 with more than 11") as told:
        results = script.main([*arguments(text), *options])
    assert {name: results["sequences"]["dev"][name] for name in ("kept", "too_long", "empty", "unknown")} == {
        "kept": 21,
        "too_long": 1,
        "empty": 1,
        "unknown": LENGTH,
    }
    assert f"|unknown:{LENGTH}|" in results["dev"]["signature"]
    unknown = f"Tokens outside the vocabulary, replaced by the unknown token: {LENGTH}."
    assert unknown in [str(warning.message) for warning in told]
    assert f"Dropped 1 with no text, or an empty side (remove these lines). {unknown}\n" in capsys.readouterr().out


def test_a_tokenizer_that_ends_texts_is_refused(text, tmp_path):
    from hf_attncal.data.tokenizer import train_bpe_tokenizer

    train_bpe_tokenizer(["a b", "a b"], 20).save_pretrained(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match=r"got \[0\] for an empty text, bos None, padding 2"):
        script.main([*arguments(text), f"tokenizer.pretrained={tmp_path / 'tokenizer'}"])


# ---- what is counted ----


class Fixed(torch.nn.Module):
    """Gives the same logits, and fields that grow by one with every step."""

    device = torch.device("cpu")

    def forward(self, input_ids, attention_mask, output_receptive_fields):
        self.logits = torch.arange(5.0).expand(*input_ids.shape, 5)
        fields = torch.ones(len(input_ids), *[input_ids.shape[1]] * 2, dtype=torch.bool).tril()
        return type("Output", (), {"logits": self.logits, "target_receptive_fields": fields})


def test_padding_and_the_first_token_are_no_predictions():
    batch = LanguageCollator(0)([{"input_ids": [3, 1, 4, 0]}, {"input_ids": [3, 2]}])
    assert batch["labels"].tolist() == [[-100, 1, 4, 0], [-100, 2, -100, -100]]  # 0 is a token as well
    sums = sequence_sums(Fixed(), [batch])
    nats = -torch.arange(5.0).log_softmax(-1).numpy()
    expected = [[nats[1] + nats[4] + nats[0], 3, 1 + 2 + 3], [nats[2], 1, 1]]
    assert sums == pytest.approx(np.array(expected), rel=1e-6)
    score = perplexity(sums[:, :2], unit="words", end=True, unknown=2)
    assert (score.tokens, score.cross_entropy) == (4, pytest.approx((nats[[0, 1, 2, 4]].sum()) / 4))
    assert score.signature.startswith("Perplexity|unit:words|end:counted|unknown:2|n:2|version:")
    with pytest.raises(ValueError, match=r"`counts`.*at least one"):
        perplexity(sums[:0, :2], unit="words", end=True, unknown=0)
