"""Models that are trained out: who is compared with whom, what becomes of it, and tags by way of links."""

import importlib
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def experiment(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module


def trained(folder, seed, **translations):
    folder.mkdir(parents=True)
    config = {"training": {"seed": seed}, "evaluation": {"bleu_tokenize": "none"}}
    (folder / "results.json").write_text(json.dumps({"config": config}), encoding="utf-8")
    for split, lines in translations.items():
        (folder / f"{split}.hypotheses.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return folder


def test_each_model_is_compared_with_the_baseline_of_its_seed(experiment, tmp_path):
    good = [f"a dog number {n} runs over the hill" for n in range(8)]
    bad = [line.replace("dog", "cat") for line in good]
    folders = {
        "baseline=1": trained(tmp_path / "b1", 1, dev=bad, test=good),
        "baseline=2": trained(tmp_path / "b2", 2, dev=good, test=good),
        "gated=1": trained(tmp_path / "g1", 1, dev=good, test=bad),
        "leaky=3": trained(tmp_path / "l3", 3, dev=good, test=good),  # without a baseline
    }
    models = experiment("frozen").read_models([f"{name[:-2]}={folder}" for name, folder in folders.items()])
    found = experiment("converged").paired(models, {"dev": good, "test": good})
    assert list(found) == ["gated_seed1"]
    assert found["gated_seed1"]["dev"]["score"] == pytest.approx(100)
    assert found["gated_seed1"]["dev"]["minus_baseline"] > 0 > found["gated_seed1"]["test"]["minus_baseline"]
    assert "bs:1000" in found["gated_seed1"]["dev"]["signature"]


def test_other_models_stay_with_what_they_were_compared_with(experiment, tmp_path, monkeypatch):
    good = [f"a dog number {n} runs over the hill" for n in range(8)]
    bad = [line.replace("dog", "cat") for line in good]
    module = experiment("converged")
    monkeypatch.setattr(module, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(module, "REFERENCES", {"multi30k": {"dev": "dev", "test": "test"}})
    for name in ("dev", "test"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in good), encoding="utf-8")
    for name in ("baseline", "gated", "leaky"):
        for seed in (1, 2):
            trained(tmp_path / f"{name}{seed}", seed, dev=good if name == "leaky" else bad, test=good)
    file = tmp_path / "results" / "converged" / "multi30k" / "paired.json"

    def compared(*names):
        models = [f"--model={name[:-1]}={tmp_path / name}" for name in names]
        module.main(["multi30k", "--data", str(tmp_path), *models])
        return json.loads(file.read_text(encoding="utf-8"))

    first = compared("baseline1", "baseline2", "gated1", "gated2")["paired"]
    assert list(first) == ["gated_seed1", "gated_seed2"]
    (tmp_path / "baseline1" / "dev.hypotheses.txt").write_text("".join(f"{line}\n" for line in good), "utf-8")
    second = compared("baseline1", "leaky1")["paired"]
    assert second == first | {"leaky_seed1": second["leaky_seed1"]}
    assert second["leaky_seed1"]["dev"]["baseline_sha256"] != first["gated_seed1"]["dev"]["baseline_sha256"]
    assert second["leaky_seed1"]["test"] == first["gated_seed1"]["test"]
    third = compared("baseline1", "gated1")["paired"]
    assert third == second | {"gated_seed1": third["gated_seed1"]}
    assert third["gated_seed1"]["dev"]["minus_baseline"] < 0 == first["gated_seed1"]["dev"]["minus_baseline"]
    (tmp_path / "test").write_text("".join(f"{line}\n" for line in bad), encoding="utf-8")
    with pytest.raises(ValueError, match=r"`data_sha256`.*Remove"):
        compared("baseline1", "leaky1")
    assert json.loads(file.read_text(encoding="utf-8"))["paired"] == third


def test_words_without_a_tagger_have_the_tag_of_their_link(experiment):
    module = experiment("parts_of_speech")
    tagger = module.Tagger([("The", "determiner"), ("house", "noun"), ("walked", "verb"), ("the", "determiner")])
    assert [tagger.tag(word) for word in ("the", "house", "talked", ",")] == [
        "determiner",
        "noun",
        "verb",
        "punctuation",
    ]

    def align(pairs):
        for source, target in pairs:
            links, scores = ((0, 0), (1, 0), (1, 1)), (0.9, 0.2, 0.7)
            yield SimpleNamespace(source=source.split(), target=target.split(), links=links, scores=scores)

    aligner = SimpleNamespace(align=align)
    found = module.projected(tagger, aligner, ["the house"], ["das Haus hier ."])
    assert found == [["determiner", "noun", "none", "punctuation"]]
    assert module.coarse("NNS") == "noun"
    assert module.coarse("PRP$") == "pronoun"
    assert module.coarse("FW") == "other"
