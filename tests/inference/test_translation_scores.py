"""Scores of translations, against the model asked for one token after the other, and against beam search's own."""

import copy
from dataclasses import replace

import pytest
import torch
from seq2seq_helpers import KINDS, SOURCES, bpe_tokenizer, text_model

import hf_attncal.inference.generation as generation
from hf_attncal.inference.generation import Generated
from hf_attncal.inference.translation import translate_lines, translate_texts

LINES = [*SOURCES[:3], " ", *SOURCES[3:]]
# Added to the logit of the end of sentence: some translations then end by themselves, others are cut off.
END = {("marian", "stock"): 2.0, ("marian", "ours"): 4.0, ("bart", "stock"): 2.0, ("bart", "ours"): 4.0}


def ending_model(family: str, kind: str):
    model = copy.deepcopy(text_model(family, kind))
    model.final_logits_bias[0, bpe_tokenizer().eos_token_id] = END[family, kind]
    return model


def ids_of(found: Generated) -> list[int]:
    return bpe_tokenizer().convert_tokens_to_ids(list(found.tokens))


@torch.no_grad()
def slow_scores(model, line: str, ids: list[int]) -> list[float]:
    """Log-probability of each token: one sentence, one token after the other, no cache."""
    source = torch.tensor([bpe_tokenizer()(line)["input_ids"]])
    given = [model.generation_config.decoder_start_token_id]
    scores = []
    for token in ids:
        logits = model(input_ids=source, decoder_input_ids=torch.tensor([given])).logits[0, -1]
        scores.append((logits - logits.exp().sum().log())[token].item())
        given.append(token)
    return scores


@torch.no_grad()
def beam_score(model, line: str, ids: list[int], **options) -> float:
    """Return the beam search score of the translation of one line, which must be the same."""
    output = model.generate(
        input_ids=torch.tensor([bpe_tokenizer()(line)["input_ids"]]),
        max_length=None,
        return_dict_in_generate=True,
        output_scores=True,
        **options,
    )
    assert output.sequences[0, 1:].tolist() == ids
    return output.sequences_scores.item()


@pytest.mark.third("family", "kind", "beams", "penalty")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("beams", "penalty"), [(1, 1.0), (3, 1.0), (3, 1.5), (2, -0.5)])
def test_scores_are_those_of_the_model_token_by_token(family, kind, beams, penalty):
    model = ending_model(family, kind)
    options = {"num_beams": beams, "length_penalty": penalty, "max_new_tokens": 12}
    found = translate_lines(model, bpe_tokenizer(), LINES, batch_size=4, scores=True, **options)
    model.eval()
    end = bpe_tokenizer().eos_token
    ended = [line.tokens[-1] == end for line in found if line.tokens]
    assert any(ended)
    assert penalty < 0 or not all(ended)  # then short ones are preferred
    for line, result in zip(LINES, found, strict=True):
        if not line.strip():
            assert result == Generated("")
            continue
        ids = ids_of(result)
        assert result.text == bpe_tokenizer().decode(ids, skip_special_tokens=True).strip()
        assert len(ids) == 12 or result.tokens[-1] == end
        assert end not in result.tokens[:-1]
        assert result.token_scores == pytest.approx(slow_scores(model, line, ids), abs=1e-10)
        assert result.score == pytest.approx(sum(result.token_scores) / len(ids) ** penalty)
        if beams > 1:
            assert result.score == pytest.approx(beam_score(model, line, ids, **options), rel=1e-6)


@pytest.mark.half("family")
def test_scores_change_no_translation(family):
    model = ending_model(family, "stock")
    for beams in (1, 3):
        scored = translate_lines(model, bpe_tokenizer(), LINES, num_beams=beams, scores=True)
        plain = translate_lines(model, bpe_tokenizer(), LINES, num_beams=beams)
        assert plain == [replace(line, tokens=(), token_scores=(), score=None) for line in scored]
        assert translate_texts(model, bpe_tokenizer(), LINES, num_beams=beams) == [line.text for line in plain]


def test_the_scoring_batch_does_not_change_scores(monkeypatch):
    model = ending_model("marian", "ours")
    together = translate_lines(model, bpe_tokenizer(), LINES, max_new_tokens=12, scores=True)
    monkeypatch.setattr(generation, "_TOKENS_AT_ONCE", 20)  # one translation, or two short ones
    apart = translate_lines(model, bpe_tokenizer(), LINES, max_new_tokens=12, scores=True)
    for one, other in zip(together, apart, strict=True):
        assert (one.text, one.tokens) == (other.text, other.tokens)
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-12)


def test_a_first_token_without_a_choice_is_certain():
    """Models with a token for the language need this; beam search also counts it so."""
    model = ending_model("bart", "stock").eval()
    forced = bpe_tokenizer().convert_tokens_to_ids("▁das")
    model.generation_config.forced_bos_token_id = forced
    options = {"num_beams": 3, "max_new_tokens": 12}
    found = translate_lines(model, bpe_tokenizer(), SOURCES, scores=True, **options)
    for line, result in zip(SOURCES, found, strict=True):
        ids = ids_of(result)
        assert ids[0] == forced
        expected = slow_scores(model, line, ids)
        assert expected[0] < -1
        assert result.token_scores == pytest.approx([0, *expected[1:]], abs=1e-10)
        assert result.score == pytest.approx(beam_score(model, line, ids, **options), rel=1e-6)
