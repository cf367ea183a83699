"""The chunking probe and the look at embeddings, on tiny random models and a made-up grammar."""

import gzip
import importlib
import json
import sys
from functools import cache
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from conll import TaggedSentence
from seq2seq_helpers import randomized, sized

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForConditionalGeneration
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.data.words import tokenize_words

ROOT = Path(__file__).resolve().parents[2]
WORDS = {"DT": ["The", "a", "every"], "JJ": ["old", "young"], "NN": ["man", "woman", "dog"], "VBZ": ["has"]}
PATTERNS = ["DT NN VBZ DT JJ NN", "DT JJ NN VBZ DT NN", "DT JJ JJ NN VBZ"]
CHUNKS = {"DT": "B-NP", "JJ": "I-NP", "NN": "I-NP", "VBZ": "B-VP"}


def sentences(count: int, seed: int) -> list[TaggedSentence]:
    generator = np.random.default_rng(seed)
    made = []
    for pattern in generator.choice(PATTERNS, count):
        parts = tuple(pattern.split())
        words = tuple(str(generator.choice(WORDS[part])) for part in parts)
        made.append(TaggedSentence(words, parts, tuple(CHUNKS[part] for part in parts)))
    return made


@pytest.fixture(scope="module")
def experiments():
    """The two scripts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "experiments"))
        names = ("chunking", "embeddings", "frozen")
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})


@cache
def tokenizer():
    """One for which every word of the grammar is a token."""
    words = [word.lower() for words in WORDS.values() for word in words]
    return train_bpe_tokenizer([" ".join(words)] * 5, vocab_size=90)


def random_model(streams: int = 1, **changes):
    torch.manual_seed(3)
    config = DiscreteTransformerConfig(**sized(tokenizer(), **changes), streams=streams)
    return randomized(DiscreteTransformerForConditionalGeneration(config)).eval()


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """What two trainings have left, with one stream and with two; the text beside them."""
    root = tmp_path_factory.mktemp("runs")
    for streams, name in ((1, "soft"), (2, "two")):
        random_model(streams).save_pretrained(root / name)
        tokenizer().save_pretrained(root / name)
        (root / name / "results.json").write_text(json.dumps({"config": {"training": {"seed": streams}}}))
    for split, count, seed in (("train", 60, 1), ("test", 12, 2)):
        rows = [zip(*one, strict=True) for one in sentences(count, seed)]
        text = "\n".join("".join(" ".join(row) + "\n" for row in of_sentence) for of_sentence in rows)
        (root / f"{split}.txt.gz").write_bytes(gzip.compress(text.encode()))
    (root / "text").write_text("\n".join(" ".join(one.words) for one in sentences(60, 1)) + "\n")
    return root


def called(module, monkeypatch, *arguments) -> None:
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.main()


# ---- vectors ----


@pytest.mark.parametrize("streams", [1, 2])
def test_a_word_is_the_state_of_its_first_subword(experiments, streams):
    """Of sentences one at a time, without padding."""
    model = random_model(streams)
    words = [one.words for one in sentences(5, 4)]
    parts, cut = experiments.chunking.first_subwords(tokenizer(), words, 64)
    assert (len(parts), cut) == (5, 0)
    found = experiments.chunking.encoder_states(model, tokenizer().pad_token_id, parts)
    assert list(found) == [["only"], ["syntactic", "semantic"]][streams - 1]
    alone = {stream: [] for stream in found}
    for one in words:
        (tokens,) = tokenize_words(tokenizer(), [" ".join(one)])
        with torch.no_grad():
            outputs = model.get_encoder()(input_ids=torch.tensor([tokens.ids.tolist()]))
        places = [tokens.word_ids.tolist().index(word) for word in range(len(one))]
        alone[list(found)[-1]].append(outputs.last_hidden_state[0, places])
        if streams == 2:
            alone["syntactic"].append(outputs.syntactic_last_hidden_state[0, places])
    for stream, expected in alone.items():
        np.testing.assert_allclose(found[stream], torch.cat(expected).numpy(), atol=1e-4)
    if streams == 2:
        assert np.abs(found["syntactic"] - found["semantic"]).max() > 0.1


def test_a_long_sentence_is_halved_between_words(experiments):
    words = [["man", "dog"], ["mad", "woman", "doggy", "old", "youngest"] * 3]
    whole, cut = experiments.chunking.first_subwords(tokenizer(), words, None)
    assert (len(whole), cut) == (2, 0)
    parts, cut = experiments.chunking.first_subwords(tokenizer(), words, len(whole[1].ids) // 2 + 2)
    assert cut == 1
    assert len(parts) > 2
    assert sum(part.words for part in parts) == 17
    first = [tokens.ids[experiments.chunking.first_places(tokens)].tolist() for tokens in parts]
    before = [tokens.ids[experiments.chunking.first_places(tokens)].tolist() for tokens in whole]
    assert list(chain.from_iterable(first)) == list(chain.from_iterable(before))


def test_random_weights_are_others_and_the_same_again(experiments):
    model = random_model(2)
    first, again, other = (experiments.chunking.untrained(model, seed) for seed in (1, 1, 2))
    weights = [one.get_encoder().syntactic_embed_tokens.weight for one in (model, first, again, other)]
    assert weights[1].equal(weights[2])
    assert not weights[1].equal(weights[0])
    assert not weights[1].equal(weights[3])


# ---- the layer and the baseline ----


def test_the_layer_learns_what_is_linear_and_not_what_is_not_there(experiments):
    generator = np.random.default_rng(0)
    train, test = sentences(80, 1), sentences(20, 2)
    parts = sorted(CHUNKS)

    def vectors(some):
        places = [parts.index(part) for one in some for part in one.parts_of_speech]
        return (np.eye(4)[places] + 0.01 * generator.normal(size=(len(places), 4))).astype(np.float32)

    tags = [one.chunk_tags for one in train]
    chosen, found = experiments.chunking.probe(vectors(train), vectors(test), tags)
    assert found == [tag for one in test for tag in one.chunk_tags]
    assert chosen["dev_f1"][chosen["C"]] == max(chosen["dev_f1"].values()) == 1
    noise = [generator.normal(size=vectors(some).shape).astype(np.float32) for some in (train, test)]
    _, found = experiments.chunking.probe(*noise, tags)
    assert np.mean([a == b for a, b in zip(found, chain.from_iterable(s.chunk_tags for s in test), strict=True)]) < 0.7
    with pytest.raises(ValueError, match=r"\d+ tags do not fit \d+ words"):
        experiments.chunking.probe(noise[0][1:], noise[1], tags)


def test_the_baseline_is_the_most_frequent_tag_of_a_part_of_speech(experiments):
    train = [TaggedSentence(("a", "b", "c"), ("X", "X", "Y"), ("B-NP", "I-NP", "O"))]
    train += [TaggedSentence(("d",), ("X",), ("B-NP",))]
    test = [TaggedSentence(("e", "f", "g"), ("Y", "X", "NEW"), ("O", "O", "O"))]
    assert experiments.chunking.baseline(train, test) == [("O", "B-NP", "O")]


# ---- the scripts ----


@pytest.mark.slow
def test_a_results_file_for_every_model(experiments, folders, tmp_path, monkeypatch):
    models = ["--model", f"soft={folders / 'soft'}", "--model", f"two={folders / 'two'}"]
    for output in ("first", "again"):
        options = ("--data", folders, *models, "--bootstrap", 20, "--output", tmp_path / output)
        called(experiments.chunking, monkeypatch, *options)
    read = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in sorted((tmp_path / "first").iterdir())}
    assert list(read) == ["baseline.json", "soft_seed1.json", "two_seed2.json"]
    for result in read.values():
        assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
        assert {"train.txt.gz", "test.txt.gz"} <= set(result["data_sha256"])
    assert read["baseline.json"]["test"]["f1"] == 1  # a part of speech has one tag in this grammar
    soft, two = read["soft_seed1.json"], read["two_seed2.json"]
    assert "soft_seed1/model.safetensors" in soft["data_sha256"]
    assert (soft["config"]["setting"], soft["config"]["training"]["seed"]) == ("soft", 1)
    assert soft["text"]["test"]["words"] == sum(len(one.words) for one in sentences(12, 2))
    assert soft["text"]["train"]["sentences_in_parts"] == soft["text"]["train"]["words_with_unknown_tokens"] == 0
    assert list(soft["streams"]) == ["only"]
    assert sorted(two["streams"]) == ["semantic", "syntactic"]
    for row in chain.from_iterable(
        stream.values() for stream in (*soft["streams"].values(), *two["streams"].values())
    ):
        test = row["test"]
        assert test["interval"][0] <= test["f1"] <= test["interval"][1]
        assert test["words"] == soft["text"]["test"]["words"]
    assert sorted(two["streams"]["semantic"]) == ["embeddings", "encoder", "untrained"]
    difference = two["syntactic_minus_semantic"]
    f1 = [two["streams"][stream]["encoder"]["test"]["f1"] for stream in ("syntactic", "semantic")]
    assert difference["f1"] == f1[0] - f1[1]
    again = json.loads((tmp_path / "again" / "two_seed2.json").read_text(encoding="utf-8"))
    assert again["streams"] == two["streams"]


def test_neighbours_and_their_picture(experiments, folders, tmp_path, monkeypatch):
    options = ["--data", folders, "--text", folders / "text", "--model", f"two={folders / 'two'}", "--neighbours", 2]
    options += ["--bootstrap", 20, "--output", tmp_path, "--picture", tmp_path / "new" / "map.png"]
    called(experiments.embeddings, monkeypatch, *options, "--examples", "man")
    result = json.loads((tmp_path / "two_seed2.json").read_text(encoding="utf-8"))
    assert list(result)[:6] == ["config", "command", "commit", "software", "hardware", "data_sha256"]
    assert list(result["streams"]) == ["syntactic", "semantic"]
    shares = []
    for stream in result["streams"].values():
        score = stream["shared_tags"]
        shares.append(score["share"])
        assert score["interval"][0] <= score["share"] <= score["interval"][1]
        assert len(stream["examples"]["man"]) == 2
        assert "man" not in stream["examples"]["man"]
    assert result["syntactic_minus_semantic"]["share"] == shares[0] - shares[1]
    assert (tmp_path / "new" / "map.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(SystemExit):
        called(experiments.embeddings, monkeypatch, *options, "--examples", "nobody")


def test_words_are_frequent_known_and_one_token(experiments):
    lines = ["man man . dog dog dog", "woman man man unheardofword"]
    tagger = dict.fromkeys(["man", "dog", "woman", ".", "unheardofword"], "NN")
    found = experiments.embeddings.frequent_words(lines, tagger, tokenizer(), 2)
    assert list(found) == ["man", "dog"]
    assert list(found.values()) == tokenizer().convert_tokens_to_ids(["▁man", "▁dog"])
    del tagger["man"]
    assert list(experiments.embeddings.frequent_words(lines, tagger, tokenizer(), 2)) == ["dog", "woman"]
    with pytest.raises(ValueError, match="0 words of the text are one token"):
        experiments.embeddings.frequent_words(["unheardofword"], tagger, tokenizer(), 5)
