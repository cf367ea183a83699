"""What the experiments on gold links and on faithfulness write of tiny random models."""

import json
import sys
from pathlib import Path

import pytest
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.data.pharaoh import format_links


def write(path: Path, lines) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """A gated model in lower case and a stock one, gold links, and translation text."""
    root = tmp_path_factory.mktemp("attribution")
    for name, kind in (("gated", "ours"), ("baseline", "stock")):
        text_model("marian", kind).save_pretrained(root / name)
        bpe_tokenizer().save_pretrained(root / name)
        write(root / name / "test.hypotheses.txt", reversed(TARGETS))
        run = {"config": {"training": {"seed": 7}, "data": {"lowercase": name == "gated"}}}
        (root / name / "results.json").write_text(json.dumps(run))
    for split in ("dev", "test"):
        write(root / "wpt03-enfr" / f"{split}.en", SOURCES)
        write(root / "wpt03-enfr" / f"{split}.fr", TARGETS)
        write(root / "wpt03-enfr" / f"{split}.align", (format_links(sorted(pair.links)) for pair in PAIRS))
    write(root / "test_2016_flickr.en", SOURCES)
    write(root / "test_2016_flickr.de", TARGETS)
    write(root / "train.en", SOURCES)
    return root


def run(script, monkeypatch, arguments: list) -> None:
    monkeypatch.setattr(sys, "argv", ["x", *map(str, arguments)])
    script.main()


@pytest.mark.slow
def test_error_rates_of_all_methods_are_written(experiment, desk, tmp_path, monkeypatch):
    script = experiment("attribution_gold")
    seen = []
    links_of = script.attribution_links
    monkeypatch.setattr(script, "attribution_links", lambda *args: seen.append(args[3].options) or links_of(*args))
    models = ["--model", f"gated={desk / 'gated'}", "--model", f"baseline={desk / 'baseline'}"]
    options = ["--steps", 2, "--points", 1, 3, "--bootstrap", 20, "--aligner", desk / "baseline"]
    arguments = ["--data", desk, "--pair", "wpt03-enfr", *models, *options, "--output", tmp_path]
    run(script, monkeypatch, arguments)
    found = json.loads((tmp_path / "gold_wpt03-enfr_gated_seed7.json").read_text())
    assert found["config"]["setting"] == "gated"
    assert set(found["data_sha256"]) > {"dev.en", "test.align"}
    names = {"attention", "attention_shifted", "attention_uncalibrated", "contribution", "alti", "posterior"}
    assert names <= found["methods"].keys()
    assert "contribution" not in json.loads((tmp_path / "gold_wpt03-enfr_baseline_seed7.json").read_text())["methods"]
    chosen = found["methods"]["contribution"]["chosen"]
    assert chosen["dev"]["aer"] == chosen["test"]["aer"]  # dev and test are the same here
    assert chosen["dev"]["aer"] <= found["methods"]["contribution"]["mean"]["dev"]["aer"]
    assert chosen["minus_attention"]["interval"][0] <= chosen["minus_attention"]["aer"]
    assert found["methods"]["integrated_gradients"]["chosen"]["options"]["steps"] == 2
    assert found["methods"]["posterior"]["mean"]["options"] == {}
    assert seen == 2 * [{"steps": 1}, {"steps": 3}]
    assert set(found["integrated_gradients_dev"]) == {"1", "3"}
    best = min(
        (of["chosen"]["dev"]["aer"] for name, of in found["methods"].items() if name != "posterior"),
    )
    assert found["methods"][found["best_on_dev"]]["chosen"]["dev"]["aer"] == best
    run(script, monkeypatch, [*arguments, "--methods", "attention", "contribution"])
    few = json.loads((tmp_path / "gold_wpt03-enfr_gated_seed7.json").read_text())["methods"]
    assert set(few) == {"attention", "attention_shifted", "contribution", "contribution_shifted", "posterior"}
    assert few["contribution"]["chosen"]["test"] == chosen["test"]


def test_text_is_in_the_case_that_the_model_was_trained_on(experiment, desk):
    frozen = experiment("frozen").read_models([f"gated={desk / 'gated'}", f"baseline={desk / 'baseline'}"])
    assert [of.in_its_case(["Das Haus"]) for of in frozen] == [["das haus"], ["Das Haus"]]


@pytest.mark.slow
def test_faithfulness_of_references_and_outputs_is_written(experiment, desk, tmp_path, monkeypatch):
    script = experiment("faithfulness")
    files = (("test_2016_flickr.en", "test_2016_flickr.de"), "train.en")
    monkeypatch.setattr(script, "FILES", {"multi30k": files})
    seen = {}
    judge = script.judge_faithfulness

    def noting(model, tokenizer, sources, targets, scores, **options):
        seen[options["kind"]] = (sources, targets, options["frequencies"])
        return judge(model, tokenizer, sources, targets, scores, **options)

    monkeypatch.setattr(script, "judge_faithfulness", noting)
    options = ["--pairs", 2, "--steps", 1, "--bootstrap", 20, "--hard", "--output", tmp_path]
    run(script, monkeypatch, ["--data", desk, "--model", f"gated={desk / 'gated'}", *options])
    found = json.loads((tmp_path / "faithfulness_multi30k_gated_seed7.json").read_text())
    lower = [text.lower() for text in SOURCES]
    assert seen["reference"][:2] == (lower[:2], [text.lower() for text in TARGETS[:2]])
    assert seen["output"][1] == [text.lower() for text in TARGETS[::-1][:2]]
    assert sum(seen["output"][2].values()) == sum(len(text.split()) for text in SOURCES)
    for kind in ("reference", "output"):
        assert kind in found[kind]["signature"]
        assert {"contribution", "contribution@top", "attention_uncalibrated", "alti"} <= found[kind]["methods"].keys()
        assert found[kind]["method"] == "contribution"
        assert found[kind]["methods"]["contribution@top"]["hide"]["comprehensiveness"]["circular"]
        assert "attention" in found[kind]["verdicts"]["sufficiency"]
        assert len(found[kind]["operator_agreement"]) == 6
