"""The whole analysis of a model: what must not change its numbers does not, and what cannot be read is left out."""

import numpy as np
import pytest
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.data.pharaoh import GoldAlignment
from hf_attncal.inference.reading import PairTooLongError
from hf_attncal.report.analysis import analyze_corpus, chosen_methods
from hf_attncal.report.corpus import Corpus

TAGS = [["capital" if word[0].isupper() else "small" for word in target.split()] for target in TARGETS]
GOLD = [GoldAlignment(pair.links, pair.links) for pair in PAIRS]
NO_LINKS = GoldAlignment(frozenset(), frozenset())
CORPUS = Corpus(SOURCES, TARGETS, gold=GOLD, tags=TAGS)
OPTIONS = {"methods": ["attention", "contribution", "random"], "bootstrap": 0, "browsed": 0, "measured": 30}


def rows_of(corpus: Corpus, **options) -> dict[str, list]:
    """Chart -> rows. Without intervals: the resamples are those of pairs in their order."""
    report = analyze_corpus(text_model("marian", "ours"), corpus, bpe_tokenizer(), **OPTIONS | options)
    return {chart.name: chart.rows for section in report.sections for chart in section.charts}


@pytest.fixture(scope="module")
def expected():
    return rows_of(CORPUS)


@pytest.mark.parametrize("changed", ["batches", pytest.param("order", marks=pytest.mark.slow), "pairs without words"])
def test_charts_depend_only_on_the_pairs(expected, changed):
    found = {
        "batches": lambda: rows_of(CORPUS, batch_size=5),
        "order": lambda: rows_of(Corpus(SOURCES[::-1], TARGETS[::-1], gold=GOLD[::-1], tags=TAGS[::-1])),
        "pairs without words": lambda: rows_of(
            Corpus([" ", *SOURCES], ["", *TARGETS], gold=[NO_LINKS, *GOLD], tags=[[], *TAGS]), measured=len(SOURCES)
        ),
    }[changed]()
    assert found.keys() == expected.keys()
    assert {"aer_by_method", "aer_by_tag", "comprehensiveness", "reliability_by_layer"} <= found.keys()
    for name, rows in expected.items():
        assert len(found[name]) == len(rows)
        for row, other in zip(rows, found[name], strict=True):
            for cell, same in zip(row, other, strict=True):
                if isinstance(cell, float):
                    np.testing.assert_allclose(same, cell, rtol=1e-6, atol=1e-9, err_msg=f"{name} {row}")
                else:
                    assert same == cell


def test_the_verdict_comes_first_then_the_tokens_that_a_stock_models_attention_rests_on():
    tokenizer, quick = bpe_tokenizer(), {"methods": ["attention"], "bootstrap": 0, "browsed": 0, "measured": 0}
    stock = analyze_corpus(text_model("marian", "stock"), CORPUS, tokenizer, probe=False, **quick)
    verdict, first = stock.summary[:2]
    assert verdict == str(stock.verdict)
    steps = stock.observed.steps.sum()
    shares = [stock.observed.by_group[:, layer, 1:].sum() / steps for layer in range(stock.observed.by_group.shape[1])]
    assert all(0.01 < share < 0.99 for share in shares)
    told = [f"{100 * share:.1f} % in layer {layer}" for layer, share in enumerate(shares)]
    assert first.startswith("Attention on the end of sentence, other special tokens and punctuation: ")
    assert all(part in first for part in told)
    assert first.endswith(" (counted from 0).")
    ours = analyze_corpus(text_model("marian", "ours"), CORPUS, tokenizer, **quick)
    assert ours.summary[0] == str(ours.verdict)


@pytest.mark.parametrize(
    ("pairs", "options", "problem"),
    [
        ([], {}, "`pairs` must be all sources, or all pairs .*got none"),
        ([("a", "b", "c")], {}, "`pairs` must be all sources, or all pairs"),
        (["a", ("a", "b")], {}, "`pairs` must be all sources, or all pairs"),
        ([("a", " ")], {}, "a pair with words on both sides, got none among 1 pairs"),
        ([("der die", "the")], {"methods": ["attentio"]}, "got 'attentio'"),
        ([("der die", "the")], {"methods": "attentio"}, "got 'attentio'"),
        (Corpus(["der die"], ["the"], gold=[GoldAlignment((), ())]), {}, "must link at least one word, got no link"),
        ([("der die", "the")], {"tokenizer": None}, "`tokenizer` must be the tokenizer of the model, got None"),
        ([("das alte Haus " * 40, "the")], {}, "line 1 has .* source tokens"),
        (Corpus(["der die"], ["the"], tags=[["x", "y"]]), {}, "line 1: `tags` must have 1 tags"),
    ],
)
def test_errors_come_before_anything_is_measured(monkeypatch, pairs, options, problem):
    for name in ("readings_of_pairs", "recorded_value_norms"):
        monkeypatch.setattr(f"hf_attncal.report.observations.{name}", lambda *_, **__: pytest.fail("measured"))
    options = {"tokenizer": bpe_tokenizer()} | options
    with pytest.raises(ValueError, match=problem):
        analyze_corpus(text_model("marian", "ours"), pairs, **options)


def test_a_model_that_was_never_saved_can_have_no_probe():
    with pytest.raises(ValueError, match=r"No probe.*saved"):
        analyze_corpus(text_model("marian", "stock"), SOURCES, bpe_tokenizer())


def test_the_rest_of_a_text_keeps_its_line_numbers():
    rest = CORPUS.rest(2)
    assert (rest.start, rest.sources, rest.gold, rest.tags) == (2, SOURCES[2:], GOLD[2:], TAGS[2:])
    assert rest.first(1).start == 2
    with pytest.raises(ValueError, match="line 3 has 9 source tokens"), rest.naming_lines():
        raise PairTooLongError(0, "source", 9, 8)
    assert Corpus(["a", " ", "b"], ["c", "d", "e"]).with_words(5).sources == ["a", "b"]


def test_a_text_of_one_word_has_none_to_replace_it():
    corpus = Corpus(["der der", "der"], ["the the", "the"])
    with pytest.raises(ValueError, match=r"two different words.*got 1\b.*measured="):
        rows_of(corpus)
    assert "reliability_by_layer" in rows_of(corpus, measured=0)


def test_slow_parts_are_asked_for_and_say_how_long_they_take(monkeypatch, caplog):
    model, tokenizer = text_model("marian", "ours"), bpe_tokenizer()
    report = analyze_corpus(model, CORPUS, tokenizer, bootstrap=0, browsed=0)
    assert report.judged is None
    assert list(report.scored) == ["attention", "contribution", "random", "diagonal"]
    assert set(chosen_methods(model, ["all"])) == {*chosen_methods(model), "alti", "occlusion"}
    assert not caplog.records
    monkeypatch.setattr("hf_attncal.report.analysis.SILENCE", 0)
    analyze_corpus(model, CORPUS, tokenizer, **OPTIONS)
    pairs = f"{len(SOURCES)} pairs: about "
    assert [pairs in message for message in caplog.messages] == [True, True]
    assert "comparing methods with annotated links, " in caplog.messages[0]
    assert "measuring faithfulness of 3 methods, " in caplog.messages[1]
