"""Word alignment from the unsupervised alignment module, of every model that may have it."""

import copy

import pytest
import torch
from helpers import FAMILIES, assert_close
from seq2seq_helpers import PAIRS, SOURCES, TARGETS, bpe_tokenizer, randomized, sized

from hf_attncal import LuongConfig, LuongForConditionalGeneration, WordAligner
from hf_attncal.alignment import GoldAlignment, Seq2SeqAttention, argmax_links, select_attention
from hf_attncal.data.collators import NullCollator
from hf_attncal.data.tokenizer import null_token_id
from hf_attncal.data.word_tokens import tokenize_words
from hf_attncal.inference.reading import readings_of_pairs, shared_among_places
from hf_attncal.inference.word_attention import word_attention

UAM = Seq2SeqAttention(0, shift=False, weights="uam")
TEXT = list(zip(SOURCES, TARGETS, strict=True))


@pytest.fixture(scope="module")
def tokenizer():
    found = copy.deepcopy(bpe_tokenizer())  # other tests share it
    null_token_id(found)
    return found


@pytest.fixture(scope="module", params=[*FAMILIES, "luong"])
def model(request, tokenizer):
    return model_of(request.param, tokenizer, uam=True, null_token_id=null_token_id(tokenizer))


def model_of(family: str, tokenizer, **switches):
    torch.manual_seed(3)
    fields = sized(tokenizer) | switches
    if family == "luong":
        names = ("vocab_size", "d_model", "pad_token_id", "eos_token_id", "decoder_start_token_id", *switches)
        sizes = {name: fields[name] for name in names} | {"encoder_layers": 1, "decoder_layers": 1}
        model = LuongForConditionalGeneration(LuongConfig(**sizes)).double()
    else:
        model = FAMILIES[family][3](FAMILIES[family][2](**fields)).double()
    return randomized(model).eval()


@torch.no_grad()
def probabilities_of(model, tokenizer, source: str, target: str) -> torch.Tensor:
    """(steps, source tokens) of one pair as the collator makes it, places resolved."""
    example = dict(tokenizer(source, text_target=target))
    batch = NullCollator(tokenizer, model)([example])
    raw = model(**batch, output_uam_probabilities=True).uam_probabilities
    steps = torch.ones(raw.shape[:2], dtype=torch.bool)
    return shared_among_places(raw, batch["input_ids"], batch["attention_mask"].bool(), steps)[0]


def test_weights_are_those_of_single_pairs(model, tokenizer):
    """Weights belong to the step itself and not to the next one, and only to words of the target."""
    found = {}
    for pairs, reading in readings_of_pairs(model, tokenizer, SOURCES, TARGETS, attentions=False, uam=True):
        for row, pair in enumerate(pairs):
            found[pair.index] = reading.unpadded(reading.uam, row)
    aligned = WordAligner(model, tokenizer).align(TEXT)
    for index, (source, target) in enumerate(TEXT):
        expected = probabilities_of(model, tokenizer, source, target)
        assert_close(found[index], expected, 1e-10)
        sides = tokenize_words(tokenizer, [source])[0], tokenize_words(tokenizer, [target], target=True)[0]
        words = word_attention(expected, *sides)
        assert words.shape == (len(target.split()), len(source.split()))
        assert aligned[index].links == argmax_links(words)
        scores = [words[j, i].item() for i, j in aligned[index].links]
        assert aligned[index].scores == pytest.approx(scores)
        assert all(0 < score <= 1 for score in scores)


def test_it_is_the_default_of_a_model_that_has_it(model, tokenizer):
    aligner = WordAligner(model, tokenizer)
    links = [pair.links for pair in aligner.align(TEXT)]
    assert links == [pair.links for pair in WordAligner(model, tokenizer, UAM).align(TEXT)]
    attention = Seq2SeqAttention.default_of(model, "attention")
    assert links != [pair.links for pair in WordAligner(model, tokenizer, attention).align(TEXT)]
    assert attention.weights == "attention"
    assert Seq2SeqAttention.default_of(model) == UAM


def test_the_choice_between_it_and_attention(model, tokenizer):
    """Layers and heads are those of attention; what is not named stays, except where it belongs to the other one."""
    source = WordAligner(model, tokenizer).source
    attention = Seq2SeqAttention.default_of(model, "attention")

    def chosen(settings, **changes) -> Seq2SeqAttention:
        source.settings = settings
        source.choose(**changes)
        source.check_settings()
        return source.settings

    assert chosen(None, weights="attention") == attention
    assert chosen(None, layer=0) == Seq2SeqAttention(0)
    assert chosen(None, layer=0, heads=(0,), shift=False) == Seq2SeqAttention(0, (0,), False)
    assert chosen(None, shift=True) == Seq2SeqAttention(0, shift=True, weights="uam")
    assert chosen(None, source_prefix="a ") == Seq2SeqAttention(0, None, False, "a ", "uam")
    assert chosen(Seq2SeqAttention(0, (0,), True, "a "), weights="uam") == Seq2SeqAttention(
        0, None, False, "a ", "uam"
    )
    assert chosen(Seq2SeqAttention(0, (0,), True, "a "), shift=False) == Seq2SeqAttention(0, (0,), False, "a ")
    assert chosen(UAM, weights="uam") == UAM
    with pytest.raises(ValueError, match=r"`layer`.*`heads`.*got 2 and None"):
        chosen(None, weights="uam", layer=2)


def test_the_search_finds_it(tokenizer):
    model = model_of("luong", tokenizer, uam=True, null_token_id=null_token_id(tokenizer))
    links = [pair.links for pair in WordAligner(model, tokenizer).align(TEXT)]
    gold = [GoldAlignment(frozenset(of_pair), frozenset(of_pair)) for of_pair in links]
    ranked = select_attention(model, tokenizer, SOURCES, TARGETS, gold, weights="uam")
    assert [settings for settings, _ in ranked] == [UAM, Seq2SeqAttention(0, weights="uam")]
    assert ranked[0][1].aer == 0 < ranked[1][1].aer


def test_a_model_without_it_is_refused(tokenizer):
    plain = model_of("luong", tokenizer)
    with pytest.raises(ValueError, match=r"`uam`.*got one without"):
        WordAligner(plain, tokenizer, UAM).align(TEXT)
    assert Seq2SeqAttention.default_of(plain).weights == "attention"


def test_a_recurrent_model_without_attention_is_aligned_by_it(tokenizer):
    switches = {"attention_window": None, "input_feeding": False, "uam": True, "null_token_id": len(tokenizer) - 1}
    model = model_of("luong", tokenizer, **switches)
    (aligned,) = WordAligner(model, tokenizer).align(TEXT[:1])
    assert {j for _, j in aligned.links} == set(range(len(PAIRS[0].target)))
