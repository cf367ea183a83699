"""What is measured of models that copy, on tiny random ones, against counts made by hand."""

import json
import sys

import pytest
import torch
from copy_accuracy import copy_accuracy
from summary_helpers import TEXTS, copying_model, word_tokenizer

HEADLINES = ("oil rises", "gold falls", None, "steel in Oslo", None, "oil falls", None)
PAIRS = [(text, headline) for text, headline in zip(TEXTS, HEADLINES, strict=True) if headline]


@pytest.fixture(scope="module")
def copied(experiment):
    return experiment("copied_words")


@pytest.fixture(scope="module")
def copier():
    """A model that always copies, by attention that is random."""
    model, tokenizer = copying_model("marian", bias=60.0)
    return model, tokenizer


@torch.no_grad()
def looked_at(model, tokenizer, source: str, target: str) -> dict[str, list[list[set]]]:
    """Stage -> layer -> head -> the source word with the most weight for each target word, of one pair alone.

    A word is a token here.
    """
    ids, labels = (torch.tensor([tokenizer(text)["input_ids"]]) for text in (source, target))
    outputs = model(input_ids=ids, labels=labels, output_attentions=True, output_attention_details=True)
    stages = {"before": outputs.uncalibrated_cross_attentions, "after": outputs.cross_attentions}
    words = len(target.split()), len(source.split())
    return {
        stage: [
            [{(int(row.argmax()), j) for j, row in enumerate(head[: words[0], : words[1]])} for head in layer[0]]
            for layer in layers
        ]
        for stage, layers in stages.items()
    }


def test_links_of_each_head(copied, copier):
    links = copied.head_links(*copier, PAIRS)
    assert list(links) == ["before", "after"]
    expected = [looked_at(*copier, *pair) for pair in PAIRS]
    for stage, layers in links.items():
        assert layers == [
            [[pair[stage][layer][head] for pair in expected] for head in range(len(heads))]
            for layer, heads in enumerate(layers)
        ]
    found = copied.head_accuracies(*copier, PAIRS, bootstrap=0)
    assert found["after"][1][0]["accuracy"] == copy_accuracy(PAIRS, links["after"][1][0]).accuracy


def test_what_always_copies_writes_words_of_the_text(copied, copier):
    words = copied.word_shares(*copier, PAIRS)
    assert (words["in_source"], words["copied"], words["unknown_words"]) == (1.0, 1.0, 0)
    assert words["copied_right"] == words["in_source_right"]
    known = word_tokenizer().get_vocab()
    outside = sum(word in source.split() and word not in known for source, target in PAIRS for word in target.split())
    assert words["outside_reference_words"] == outside > 0


def test_shared_words_count_as_often_as_they_stand(copied):
    assert copied._shared(["a", "a", "b", "c"], ["a", "b", "b"]) == 2


@pytest.mark.slow
def test_another_head_copies_for_a_while(copied, copier):
    model, _ = copier
    before = model.config.copy_layer, model.config.copy_head
    found = copied.swapped(*copier, PAIRS)
    assert [(one["layer"], one["head"]) for one in found if one["trained"]] == [(model.config.layer_of_copies, 0)]
    assert len({one["rouge1"] for one in found}) > 1
    assert (model.config.copy_layer, model.config.copy_head) == before


@pytest.mark.slow
def test_the_command(copied, copier, tmp_path, monkeypatch):
    model, tokenizer = copier
    for seed in (1, 2):
        folder = tmp_path / f"model{seed}"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        (folder / "results.json").write_text(json.dumps({"config": {"training": {"seed": seed}}}))
    for names in copied.SPLITS.values():
        for name, lines in zip(names, zip(*PAIRS, strict=True), strict=True):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    output, picture = tmp_path / "results", tmp_path / "heads.png"
    models = [f"--model=copy_gated={tmp_path / f'model{seed}'}" for seed in (1, 2)]
    arguments = ["--data", str(tmp_path), *models, "--output", str(output), "--picture", str(picture), "--bootstrap=5"]
    monkeypatch.setattr(sys, "argv", ["copied_words.py", *arguments])
    copied.main()
    result = json.loads((output / "copy_gated_seed1.json").read_text())
    assert (result["config"]["setting"], result["copy_head"]) == ("copy_gated", [model.config.layer_of_copies, 0])
    assert {"heads", "words", "swapped", "data_sha256"} <= result.keys()
    assert picture.read_bytes().startswith(b"\x89PNG")
