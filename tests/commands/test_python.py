"""The functions of the commands from Python: over lists and files, with the result that the command writes."""

import pytest
from aligner_helpers import counting_aligner

import hf_attncal

SOURCE, TARGET, LINKS = ["the old house", "the cat"], ["das alte Haus", "die Katze"], ["0-0 1-1 2-2", "0-0 1-1"]


@pytest.fixture
def files(tmp_path):
    """The paths of the texts above."""
    for name, lines in {"source": SOURCE, "target": TARGET, "links": LINKS}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: tmp_path / name for name in ("source", "target", "links")}


def options(files) -> list[str]:
    return [word for name, path in files.items() for word in (f"--{name}", str(path))]


def test_lexicon(attncal, files, tmp_path):
    entries = hf_attncal.lexicon(SOURCE, TARGET, links=LINKS)
    assert [tuple(entry) for entry in entries[-2:]] == [("the", "das", 1, 0.5, 1.0), ("the", "die", 1, 0.5, 1.0)]
    assert hf_attncal.lexicon(**files) == entries
    assert hf_attncal.lexicon(files["source"], TARGET, links=[[(0, 0), (1, 1), (2, 2)], [(0, 0), (1, 1)]]) == entries
    assert hf_attncal.lexicon(SOURCE, TARGET, links=LINKS, output=tmp_path / "lexicon") is None
    assert attncal("align", "lexicon", *options(files))[1] == (tmp_path / "lexicon").read_text(encoding="utf-8")


def test_project(attncal, files, tmp_path):
    tags = ["DET ADJ NOUN", "DET NOUN"]
    (tmp_path / "tags").write_text("\n".join(tags), encoding="utf-8")
    lines = hf_attncal.project(SOURCE, TARGET, links=LINKS, tags=tags)
    assert [line.details["tags"] for line in lines] == [("DET", "ADJ", "NOUN"), ("DET", "NOUN")]
    assert hf_attncal.project(**files, tags=tmp_path / "tags") == lines
    written = attncal("align", "project", *options(files), "--tags", str(tmp_path / "tags"))[1]
    assert "".join(f"{line.text}\n" for line in lines) == written
    with pytest.raises(ValueError, match="line 2 of tags: 1 tags for 2 source words"):
        hf_attncal.project(SOURCE, TARGET, links=LINKS, tags=["D A N", "D"])


def test_compare(attncal, files, tmp_path):
    (tmp_path / "other").write_text("0-0 2-2\n0-0\n", encoding="utf-8")
    compared = hf_attncal.compare(LINKS, tmp_path / "other", source=SOURCE, target=files["target"])
    assert list(compared.rows) == ["hypothesis 1", str(tmp_path / "other")]
    second = compared.rows[str(tmp_path / "other")]
    assert (second.links, second.agreement, second.source_linked) == (3, 2 * 3 / 8, 3 / 5)
    command = ["align", "compare", str(files["links"]), str(tmp_path / "other")]
    written = attncal(*command, "--source", str(files["source"]), "--target", str(files["target"]))[1]
    shown = hf_attncal.compare(files["links"], tmp_path / "other", source=SOURCE, target=TARGET)
    assert f"{shown}\n" == written
    assert shown.rows[str(tmp_path / "other")] == second


def test_align_quick(attncal, files, tmp_path):
    pairs = list(zip(SOURCE, TARGET, strict=True))
    found = hf_attncal.align_quick(pairs)
    assert [len(one.source) for one in found] == [3, 2]
    assert hf_attncal.align_quick(source=files["source"], target=TARGET) == found
    assert hf_attncal.align_quick(source=[" ||| ".join(pair) for pair in pairs]) == found
    assert hf_attncal.align_quick([tuple(side.split() for side in pair) for pair in pairs]) == found
    assert hf_attncal.align_quick(pairs, output=tmp_path / "quick", scores=True) is None
    given = ["--source", str(files["source"]), "--target", str(files["target"]), "--scores"]
    written = attncal("align", "quick", *given)[1]
    assert written == (tmp_path / "quick").read_text(encoding="utf-8")
    assert written == "".join(f"{one.pharaoh(scores=True)}\n" for one in found)
    with pytest.raises(ValueError, match="--source and --target go together"):
        hf_attncal.align_quick()
    with pytest.raises(ValueError, match="source has 2 lines and target has 1"):
        hf_attncal.align_quick(source=SOURCE, target=TARGET[:1])


def test_align(attncal, files, tmp_path):
    pairs = list(zip(SOURCE, TARGET, strict=True))
    aligner = counting_aligner(pairs * 3)
    aligner.model.save_pretrained(tmp_path / "model")
    aligner.tokenizer.save_pretrained(tmp_path / "model")
    found = hf_attncal.align(aligner, pairs)
    assert found == aligner.align(pairs)
    assert hf_attncal.align(tmp_path / "model", SOURCE, TARGET) == found
    assert hf_attncal.align(tmp_path / "model", source=files["source"], target=files["target"]) == found
    assert hf_attncal.align(aligner, zip(SOURCE, TARGET, strict=True), offsets=True)[0].source_spans[0] == (0, 3)
    text = ["--source", str(files["source"]), "--target", str(files["target"])]
    written = attncal("align", "run", str(tmp_path / "model"), *text, "--format", "json")[1]
    assert hf_attncal.align(aligner, pairs, output=tmp_path / "links", format="json") is None
    assert (tmp_path / "links").read_text(encoding="utf-8") == written
    with pytest.raises(ValueError, match="--source and --target go together"):
        hf_attncal.align(aligner)
    with pytest.raises(ValueError, match="needs the name of a model"):
        hf_attncal.align(aligner, files["source"], files["target"], output=tmp_path / "parts", shard="1/2")
    with pytest.raises(ValueError, match="`layer` is for an encoder-decoder"):
        hf_attncal.align(aligner, pairs, read={"layer": 1})


def test_score(attncal, files, tmp_path):
    gold, other = ["0-0 1-1 2p2", "0-0 1-1"], ["0-0 1-1 2-2", "0-1"]
    for name, lines in {"gold": gold, "other": other}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    first, second = hf_attncal.score(gold, files["links"], other, source=SOURCE, target=TARGET, bootstrap=0).rows
    assert (first.hypothesis, first.aer, first.recall) == (str(files["links"]), 0, 1)
    assert (second.hypothesis, second.aer) == ("hypothesis 2", pytest.approx(1 - (2 + 3) / (4 + 4)))
    names = [str(tmp_path / "gold"), str(files["links"]), str(tmp_path / "other")]
    assert f"{hf_attncal.score(*names)}\n" == attncal("score", *names)[1]
    with pytest.raises(ValueError, match="--source and --target belong together"):
        hf_attncal.score(gold, other, source=SOURCE)


def test_score_of_summaries(attncal, tmp_path):
    pytest.importorskip("rouge_score")
    texts = {
        "one": ["oil falls", "the bank cuts rates"],
        "two": ["oil prices fall", "rates cut"],
        "hyp": ["oil", "rates"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    one, two, hyp = texts.values()
    (row,) = hf_attncal.score(one, hyp, metric="rouge", references=[two], bootstrap=0).rows
    assert row.rouge1 > hf_attncal.score(one, hyp, metric="rouge", bootstrap=0).rows[0].rouge1
    command = ["rouge", str(tmp_path / "one"), str(tmp_path / "hyp"), "--references", str(tmp_path / "two")]
    found = hf_attncal.score(tmp_path / "one", tmp_path / "hyp", metric="rouge", references=[tmp_path / "two"])
    assert f"{found}\n" == attncal(*command)[1]
    assert found.rows[0].rouge1 == row.rouge1
