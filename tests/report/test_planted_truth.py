"""The self-test: truths, methods and measures that are known to be right or wrong, and a run of a few steps."""

import numpy as np
import pytest
from seq2seq_helpers import bpe_tokenizer, text_model

from hf_attncal.data.synthetic.english_german import AlignedPair, generate_pairs
from hf_attncal.metrics.faithfulness import faithfulness
from hf_attncal.report import planted_truth
from hf_attncal.report.faithfulness import measures
from hf_attncal.report.planted_truth import CHANCE, ORACLE, Task, judge_methods, judge_metrics, judged_faithfulness

OPERATORS = ("replace", "hide")


@pytest.fixture(scope="module")
def task() -> Task:
    return Task.of([pair for pair in generate_pairs(60, seed=3) if len(pair.source) < 8][:6])


def random_scores(task: Task, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return [generator.random(truth.shape) for truth in task.truths["links"]]


# ---- truths ----


def test_truths_are_links_and_copies_without_punctuation():
    pair = AlignedPair(("Bolu", "sees", "."), ("heute", "sieht", "Bolu", "."), frozenset({(0, 2), (1, 1), (2, 3)}))
    task = Task.of([pair])
    assert (task.sources, task.targets) == (["Bolu sees ."], ["heute sieht Bolu ."])
    assert np.argwhere(task.truths["links"][0]).tolist() == [[1, 1], [2, 0]]
    assert np.argwhere(task.truths["copies"][0]).tolist() == [[2, 0]]


def test_the_truth_is_recovered_and_random_scores_are_as_good_as_chance(task):
    judged = judge_methods(task, {"truth": task.truths["links"], "none": random_scores(task)}, bootstrap=50)
    assert judged["truth"]["links"].accuracy == judged["truth"]["links"].auc == 1
    low, high = judged["none"]["links"].intervals["accuracy"]
    assert low < judged["none"]["links"].by_chance < high
    assert judged["truth"]["copies"].accuracy == 1


# ---- measures ----


def test_only_target_words_whose_link_is_known_are_measured(task):
    options = {"operators": ("unk",), "cuts": (1,), "soft": False}
    found = judged_faithfulness(
        text_model("marian", "stock"), bpe_tokenizer(), task, {CHANCE: random_scores(task)}, bootstrap=0, **options
    )
    assert sorted(found.words) == sorted(int(truth.any(axis=1).sum()) for truth in task.truths["links"])
    assert found.sums[ORACLE].shape == (6, 1, len(measures((1,), soft=False)))
    assert found.targets == "reference"


def made_up(means: dict[str, float]) -> dict:
    """What `judge_metrics` says of methods whose comprehensiveness and sufficiency are both around a mean."""
    generator = np.random.default_rng(0)
    falls = [{name: mean + 0.3 * generator.normal(size=(2, 2, 4)) for name, mean in means.items()} for _ in range(30)]
    found = faithfulness(falls, OPERATORS, ("comprehensiveness", "sufficiency"), targets="reference", bootstrap=200)
    return judge_metrics(found, {"contribution": 0.9, "attention": 0.6, CHANCE: 0.2})


def test_a_measure_is_usable_where_the_truth_is_better_than_random_scores():
    judged = made_up({ORACLE: 2.0, "contribution": 1.5, "attention": 1.0, CHANCE: 0.0})["replace"]
    assert judged["comprehensiveness"]["usable"]
    assert judged["comprehensiveness"]["tau"] == 1
    assert not judged["sufficiency"]["usable"]  # there the lower is the better
    assert judged["sufficiency"]["tau"] == -1
    assert judged["sufficiency"]["above_random"] == pytest.approx(2.0, abs=0.1)


def test_a_measure_that_cannot_tell_is_not_usable():
    judged = made_up({ORACLE: 0.0, "contribution": 0.0, "attention": 0.0, CHANCE: 0.0})
    for of in judged["hide"].values():
        assert not of["usable"]
        assert of["interval"][0] < 0 < of["interval"][1]


def test_circular_results_are_not_ranked():
    judged = made_up({ORACLE: 2.0, "contribution": 0.5, "attention": 1.0, CHANCE: 0.0})
    assert judged["replace"]["comprehensiveness"]["tau"] == pytest.approx(1 / 3)
    assert judged["hide"]["comprehensiveness"]["tau"] == 1  # without contribution


# ---- all of it ----


def test_a_run_of_a_few_steps(tmp_path, monkeypatch, few_points):
    monkeypatch.setattr(planted_truth, "SENTENCES", {"train": 80, "dev": 4, "test": 6})
    monkeypatch.setattr(planted_truth, "VOCABULARY_SIZE", 150)
    small = {"d_model: 128": "d_model: 16", "ffn_dim: 256": "ffn_dim: 16"}
    settings = planted_truth.SELF_TEST_SETTINGS
    for old, new in small.items():
        settings = settings.replace(old, new)
    monkeypatch.setattr(planted_truth, "SELF_TEST_SETTINGS", settings)
    found = planted_truth.run_self_test(tmp_path / "run", steps=2, measured=2, bootstrap=20)
    assert found["training"]["steps"] == 2
    names = {"attention", "attention@layer0", "contribution@layer1", "value_zeroing@layer1", "alti", "posterior"}
    assert names <= found["methods"].keys()
    assert found["best_method"] in found["methods"].keys() - {"posterior", "random", "diagonal"}
    assert found["above_control"].keys() == {"posterior", "random", "diagonal"}
    for name, above in found["above_control"].items():
        best, other = (found["methods"][of]["links"]["accuracy"] for of in (found["best_method"], name))
        assert above["value"] == pytest.approx(best - other)
        assert above["interval"][0] <= above["value"] <= above["interval"][1]
    assert list(found["above_control"]) == sorted(
        found["above_control"], key=lambda name: -found["methods"][name]["links"]["accuracy"]
    )
    assert found["faithfulness"]["methods"]["contribution"]["hide"]["comprehensiveness"]["circular"]
    assert found["faithfulness"]["methods"]["contribution@layer1"]["hide"]["comprehensiveness"]["circular"]
    assert tuple(found["metrics"]["replace"]) == measures()
    assert len(found["operator_agreement"]) == 6
