"""Alignment from recurrent encoder-decoders: one attention with one head, whose window may leave words without any."""

import functools

import pytest
import torch
from helpers import assert_close
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, randomized, rows_by_prefixes, sized

from hf_attncal import LuongConfig, LuongForConditionalGeneration, WordAligner
from hf_attncal.alignment import GoldAlignment, Seq2SeqAttention, select_attention, seq2seq_weights
from hf_attncal.drawing.plots import heat_map
from hf_attncal.inference.reading import decoder_size, readings_of_pairs

WIDTH = 1  # D of the local windows
SIZES = {"d_model": 8, "encoder_layers": 2, "decoder_layers": 2, "window_width": WIDTH, "dropout": 0.0}
WINDOWS = ("global", "local-m", "local-p")
NONE = "`attention_window` of this model of type 'luong' must not be None"


@functools.cache
def recurrent(window: str | None, fed: bool = True, **switches) -> LuongForConditionalGeneration:
    """A random model for `bpe_tokenizer`, in float64, that tests share and do not change."""
    tokens = {name: value for name, value in sized(bpe_tokenizer()).items() if name.endswith("token_id")}
    switches |= {"vocab_size": len(bpe_tokenizer()), "attention_window": window, "input_feeding": fed}
    torch.manual_seed(3)
    return randomized(LuongForConditionalGeneration(LuongConfig(**SIZES, **tokens, **switches)).double())


@pytest.fixture(params=[(window, fed) for window in WINDOWS for fed in (True, False)], ids=str)
def model(request):
    return recurrent(*request.param).train()


def rows(model) -> dict[int, torch.Tensor]:
    """The attention of each pair, (steps, source)."""
    found = {}
    for pairs, reading in readings_of_pairs(model, bpe_tokenizer(), SOURCES, TARGETS, batch_size=4):
        (layer,) = reading.attentions
        for row, pair in enumerate(pairs):
            (found[pair.index],) = reading.unpadded(layer, row)
    return found


@pytest.mark.half("model")
def test_attention_of_a_padded_batch_is_that_of_every_step_on_its_own(model):
    tokenizer = bpe_tokenizer()
    assert decoder_size(model.config) == (1, 1)
    for index, found in rows(model).items():
        source, target = (tokenizer(side[index])["input_ids"] for side in (SOURCES, TARGETS))
        expected = rows_by_prefixes(model, source, [tokenizer.pad_token_id, *target[:-1]])
        assert_close(found[None, None], expected, 1e-10)
    assert model.training


@pytest.mark.parametrize("fed", [True, False])
def test_there_is_no_weight_outside_of_a_window(fed):
    for found in rows(recurrent("local-m", fed)).values():
        step, place = (torch.arange(size) for size in found.shape)
        inside = (place - step[:, None]).abs() <= WIDTH
        assert torch.equal(found > 0, inside)
    for found in rows(recurrent("local-p", fed)).values():
        places = torch.arange(found.shape[1])
        for row in found:
            used = places[row > 0]
            assert 1 <= len(used) <= 2 * WIDTH + 1
            assert int(used[-1] - used[0]) == len(used) - 1  # side by side


def test_a_word_after_every_source_word_is_not_aligned():
    """The window of "local-m" has left the sentence: no weight, no link, and no error."""
    aligner = WordAligner(recurrent("local-m"), bpe_tokenizer(), Seq2SeqAttention(0, shift=False))
    source, target = SOURCES[0].split()[:2], TARGETS[0].split() * 3
    (alignment,) = aligner.align([(source, target)])
    last = len(target) - 1
    linked = {j for _, j in alignment.links}
    assert linked
    assert last not in linked
    (weights,) = seq2seq_weights(aligner.model, bpe_tokenizer(), [" ".join(source)], [" ".join(target)])
    assert (weights[last] == 0).all()
    assert len(heat_map({"attention": weights}, source, target).axes) == 2


def test_the_search_tries_both_steps_of_the_one_attention(model):
    gold = [GoldAlignment(frozenset(pair.links), frozenset(pair.links)) for pair in PAIRS]
    ranked = select_attention(model, bpe_tokenizer(), SOURCES, TARGETS, gold)
    assert {(setting.layer, setting.heads, setting.shift) for setting, _ in ranked} == {
        (0, None, False),
        (0, None, True),
    }


def test_contributions_of_a_calibrated_one():
    model = recurrent("global", calibration="gated", leaky=True)
    for _, reading in readings_of_pairs(model, bpe_tokenizer(), SOURCES, TARGETS, details=True):
        (phi,) = reading.contributions
        assert phi.shape == reading.attentions[0].shape
        assert phi.max() > 0
    settings = Seq2SeqAttention(0, weights="contribution")
    assert WordAligner(model, bpe_tokenizer(), settings).align([(SOURCES[0], TARGETS[0])])[0].links


def test_a_model_without_attention_is_refused():
    model, tokenizer = recurrent(None, fed=False), bpe_tokenizer()
    with pytest.raises(ValueError, match=NONE):
        WordAligner(model, tokenizer)
    with pytest.raises(ValueError, match=NONE):
        seq2seq_weights(model, tokenizer, SOURCES, TARGETS)
    with pytest.raises(ValueError, match=NONE):
        select_attention(model, tokenizer, SOURCES[:1], TARGETS[:1], [GoldAlignment(frozenset(), frozenset())])
