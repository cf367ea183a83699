"""`generate()` of the Discrete Transformer in its modes, against a loop over passes without a cache; in float64."""

import copy
import functools

import pytest
import torch
from discrete_helpers import EOS, KINDS, PAD, padded, tiny_discrete
from helpers import assert_close
from transformers import PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache, StaticCache

from hf_attncal.models.cache import named_cache

NEW_TOKENS = 7
SOURCES = [[4, 7, 3, 9, 5, 2], [5, 8, 10, 2], [6, 2]]
PROMPTS = [[6, 10, 4, 9], [9, 5], [3, 7, 8]]
SIZE = {
    "d_model": 16,
    "vocab_size": 31,
    "tie_word_embeddings": False,
    "decoder_layers": 3,
    "max_position_embeddings": 16,
}


@functools.cache
def random_model(kind: str, streams: int, hard: bool = True) -> PreTrainedModel:
    """Shared by tests, which do not change it; the first seed whose sentences are worth comparing."""
    model = tiny_discrete(kind, streams=streams, hard_attention=hard, **SIZE).eval()
    for seed in range(50):
        randomized(model, seed)
        first, second, third = (set(greedy(model, row)) for row in rows_for(model))
        if PAD not in first | second | third and first != second and max(map(len, (first, second, third))) > 1:
            return model
    raise AssertionError(f"no seed gives a {kind} model with varied sentences")


@pytest.fixture(params=[(*kind, hard) for kind in KINDS for hard in (True, False)][:-1], ids=str)
def model(request) -> PreTrainedModel:
    return random_model(*request.param)


@torch.no_grad()
def randomized(model: PreTrainedModel, seed: int) -> None:
    """Weights at which what is read matters to what comes next."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "norm" not in name:
            std = 0.1 if parameter.dim() == 1 else 0.7 if "embed" in name else parameter.shape[-1] ** -0.5
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))


def is_causal(model: PreTrainedModel) -> bool:
    return not model.config.is_encoder_decoder


def rows_for(model: PreTrainedModel) -> list[list[int]]:
    return PROMPTS if is_causal(model) else SOURCES


def batch_of(model: PreTrainedModel, rows: list[list[int]] | None = None, extra: int = 0) -> dict[str, torch.Tensor]:
    """Padded on the left for a causal model, on the right for the other."""
    rows = rows_for(model) if rows is None else rows
    longest = max(map(len, rows))
    ids = padded([*rows, [PAD] * (longest + extra)], left=is_causal(model))[: len(rows)]
    return {"input_ids": ids, "attention_mask": ids.ne(PAD).long()}


@torch.no_grad()
def greedy(model: PreTrainedModel, row: list[int], steps: int = NEW_TOKENS) -> list[int]:
    """Return the greedy output for one unpadded sentence, after its prompt or start, with a whole pass per token."""
    start = row if is_causal(model) else [model.config.decoder_start_token_id]
    tokens = list(start)
    while len(tokens) < len(start) + steps and EOS not in tokens[len(start) :]:
        ids = torch.tensor([tokens])
        if is_causal(model):
            logits = model(ids, use_cache=False).logits
        else:
            logits = model(torch.tensor([row]), decoder_input_ids=ids, use_cache=False).logits
        tokens.append(int(logits[0, -1].argmax()))
    return tokens[len(start) :]


def generate(model: PreTrainedModel, batch: dict | None = None, **options):
    """Sequences without what was given, and without padding."""
    batch = batch_of(model) if batch is None else batch
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False} | options
    sequences = model.generate(**batch, **options)
    given = batch["input_ids"].shape[1] if is_causal(model) and "input_ids" in batch else 1 - is_causal(model)
    return [[t for t in row if t != PAD] for row in sequences[:, given:].tolist()]


@pytest.mark.third("model", "options")
@pytest.mark.parametrize("options", [{}, {"use_cache": False}, {"cache_implementation": "static"}], ids=str)
def test_greedy_of_a_padded_batch_is_that_of_each_sentence(model, options):
    expected = [greedy(model, row) for row in rows_for(model)]
    assert generate(model, **options) == expected
    assert generate(model, batch_of(model, extra=3), **options) == expected


@pytest.mark.half("model", "mode")
@pytest.mark.parametrize("mode", ["beam", "sampling", "beam sampling"])
def test_search_with_a_cache_is_search_without(model, mode):
    options = {"num_beams": 1 if mode == "sampling" else 3, "do_sample": mode != "beam"}
    found = []
    for more in ({}, {"use_cache": False}, {"cache_implementation": "static"}):
        torch.manual_seed(5)
        found.append(generate(model, **options, **more))
    assert found[0] == found[1] == found[2]


def test_beams_of_a_padded_batch_are_those_of_each_sentence(model):
    batched = generate(model, num_beams=3)
    for row, expected in zip(rows_for(model), batched, strict=True):
        assert generate(model, batch_of(model, [row]), num_beams=3) == [expected]


def test_a_prefix_is_continued(model):
    """Several tokens in the first step, then one at a time."""
    for row in rows_for(model):
        whole = greedy(model, row)
        if is_causal(model):
            given = {"input_ids": torch.tensor([row + whole[:3]])}
        else:
            start = [model.config.decoder_start_token_id, *whole[:3]]
            given = {"input_ids": torch.tensor([row]), "decoder_input_ids": torch.tensor([start])}
        found = model.generate(**given, max_new_tokens=NEW_TOKENS - 3, do_sample=False)
        if EOS not in whole[:3]:
            assert found[0, -len(whole) :].tolist() == whole


@pytest.mark.parametrize("streams", [1, 2])
def test_encoder_outputs_given(streams):
    model = random_model("seq2seq", streams)
    batch = batch_of(model)
    mask = {"attention_mask": batch["attention_mask"]}
    for options in ({}, {"num_beams": 3}):
        encoded = model.get_encoder()(**batch)
        assert generate(model, mask | {"encoder_outputs": encoded}, **options) == generate(model, **options)


# ---- the cache ----


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_a_step_with_a_static_cache_is_one_graph(kind, streams):
    """On a GPU `generate` compiles it so; what asks for the value of a tensor would break it."""
    model = tiny_discrete(kind, streams=streams, encoder_layers=1, decoder_layers=1).eval()
    cache = StaticCache(config=model.config, max_cache_len=8)
    inputs = {"input_ids": torch.tensor([[5]])}
    if kind == "seq2seq":
        cache = EncoderDecoderCache(cache, StaticCache(config=model.config, max_cache_len=6))
        encoded = model.get_encoder()(torch.tensor([SOURCES[0]]))
        inputs = {"encoder_outputs": encoded, "decoder_input_ids": torch.tensor([[5]])}
    with torch.no_grad():
        plain = model(**inputs, use_cache=False).logits
        model(**inputs, **named_cache(copy.deepcopy(cache)), use_cache=True)
        compiled = torch.compile(model.forward, backend="eager", fullgraph=True)
        assert_close(compiled(**inputs, **named_cache(cache), use_cache=True).logits, plain)
    torch._dynamo.reset()


# ---- beyond the positions ----


@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_generating_past_the_last_position_is_an_error(kind, streams):
    """16 positions: a cache of 16 has no room for one more."""
    model = random_model(kind, streams)
    row = [5] * 10
    batch = {"input_ids": torch.tensor([row])}
    suppress = {"suppress_tokens": [EOS]}
    name = "decoder_input_ids" if kind == "seq2seq" else "input_ids"
    fits = 16 if kind == "seq2seq" else 7
    assert model.generate(**batch, max_new_tokens=fits, **suppress).shape[1] == 17
    for use_cache in (True, False):
        message = f"`{name}` must have at most 16 positions .*`max_position_embeddings`.*, got 17"
        with pytest.raises(ValueError, match=message):
            model.generate(**batch, max_new_tokens=fits + 1, use_cache=use_cache, **suppress)
