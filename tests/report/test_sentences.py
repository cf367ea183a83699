"""The page of a few sentences: its translations, links, and what is changed by the word that matters most."""

from types import SimpleNamespace

import pytest
import torch
from helpers import TINY

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.translation import translate_texts
from hf_attncal.report.attribution import word_scores
from hf_attncal.report.figures.contents import ChangedWord
from hf_attncal.report.pairs import MAX_SENTENCES, changes, report_on_sentences, split_translation

LINES = ["the old house is a house", "a <b>house</b>"]


def first_words(pairs):
    return [SimpleNamespace(links=((0, 0),)) for _ in pairs]


@pytest.fixture(scope="module")
def texts():
    tokenizer = train_bpe_tokenizer([*LINES] * 3, vocab_size=60)
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    fields = TINY | ids | {"vocab_size": len(tokenizer), "decoder_start_token_id": tokenizer.pad_token_id}
    torch.manual_seed(1)
    config = AttnCalMarianConfig(**fields, calibration="gated", init_std=1.0)
    return AttnCalMarianMTModel(config).eval(), tokenizer


@pytest.mark.parametrize(
    ("line", "pair"),
    [("a b", ("a b", None)), ("a\tb", ("a", "b")), ("a ||| b c", ("a", "b c")), ("a|||b", ("a|||b", None))],
)
def test_a_line_may_have_its_translation_with_it(line, pair):
    assert split_translation(line) == pair


def test_translations_are_the_models_unless_they_are_given(texts):
    found = report_on_sentences(*texts, [*LINES, "", "a house\tein Haus"], "m", align=first_words, beams=2)
    views = list(found.pairs)
    assert [view.target for view in views] == [*translate_texts(*texts, LINES, num_beams=2), "ein Haus"]
    assert list(views[0].weights) == ["attention", "calibrated", "contribution", "alti", "occlusion"]
    assert [(view.links, view.link_kind) for view in views] == [([(0, 0)], "link of the aligner")] * 3
    assert found.summary == ["Attention not evaluated: needs at least 6 sentence pairs, got 3."]


def test_the_word_taken_away_is_the_one_whose_loss_is_largest(texts):
    (view,) = report_on_sentences(*texts, LINES[:1], "m", beams=2).pairs
    words = LINES[0].split()
    (scores,) = word_scores(*texts, LINES[:1], [view.target], "occlusion")
    taken = int(scores.sum(axis=0).argmax())
    rest = " ".join(words[:taken] + words[taken + 1 :])
    whole, cut = translate_texts(*texts, [LINES[0], rest], num_beams=2)
    assert (view.without.word, view.without.given) == (words[taken], ())
    assert [word.text for word in view.without.before] == whole.split()
    assert [word.text for word in view.without.after] == cut.split()
    assert [word.loss for word in view.without.before] == pytest.approx(scores[:, taken].tolist(), rel=1e-4)


def test_losses_of_a_given_translation_and_changes_of_the_models_own():
    view = SimpleNamespace(source="zwei Hunde", target="both dogs")
    found = changes(view, 1, [0.5, 2.0], ["two", "dogs", "run"], ["two", "runners", "run", "fast"])
    assert found.given == [ChangedWord("both", loss=0.5), ChangedWord("dogs", loss=2.0)]
    assert [(word.text, word.changed, word.loss) for word in found.before] == [
        ("two", False, 0),
        ("dogs", True, 0),
        ("run", False, 0),
    ]
    assert [(word.text, word.changed) for word in found.after] == [
        ("two", False),
        ("runners", True),
        ("run", False),
        ("fast", True),
    ]


@pytest.mark.parametrize("lines", [[" ", ""], ["a"] * (MAX_SENTENCES + 1)])
def test_no_sentence_and_too_many_are_refused(texts, lines):
    with pytest.raises(ValueError, match="`sentences` must be 1 to 200"):
        report_on_sentences(*texts, lines, "m")
