"""Marian with an SSRU decoder: its equation, its attentions, its state, and what training does to it."""

import pytest
import torch
from helpers import assert_close, assert_functions_agree, assert_gradients_close, gradients, tiny_batch
from marian_helpers import tiny_ssru
from reference import ssru

from hf_attncal import SSRUConfig
from hf_attncal.models.cache import CACHE
from hf_attncal.models.modeling_ssru import SSRUSinusoidalPositions, ssru_states

BATCH = {name: tensor for name, tensor in tiny_batch().items() if name != "labels"}
TEXT = torch.tensor([[2, 6, 10, 4, 9], [2, 9, 7, 3, 4]])


@pytest.mark.parametrize("steps", [1, 2, 5, 8])
def test_the_recurrence_is_that_of_the_paper(steps):
    torch.manual_seed(steps)
    shape = (2, steps, 3)
    inputs = {"forget": torch.rand(shape), "candidate": torch.randn(shape), "first": torch.randn(2, 3)}
    inputs = {name: tensor.double() for name, tensor in inputs.items()}
    assert_functions_agree(ssru_states, ssru, inputs)


def test_long_texts_are_exact_in_float32():
    """Forget gates that keep everything for thousands of steps, and gates that keep nothing."""
    torch.manual_seed(2)
    forget = torch.where(torch.rand(1, 4000, 4) < 0.3, torch.tensor(0.0), torch.tensor(1.0))
    forget[..., 0] = 0.9999
    states = ssru_states(forget, torch.randn(1, 4000, 4))
    cell, slow = torch.zeros(1, 4).double(), []
    torch.manual_seed(2)
    torch.rand(1, 4000, 4)
    candidate = torch.randn(1, 4000, 4).double()
    for step in range(4000):
        cell = forget[:, step].double() * cell + (1 - forget[:, step].double()) * candidate[:, step]
        slow.append(cell)
    assert_close(states.double(), torch.stack(slow, dim=1), 1e-5)


def test_positions_are_those_of_marian():
    table = SSRUSinusoidalPositions(7, 8).create_weight()
    assert table[3].tolist() == pytest.approx(
        [0.1411200, 0.1388, 0.0064632, 0.0003, -0.9899925, 0.99032, 0.9999791, 1.0], abs=1e-3
    )
    assert table[1, 3].item() == pytest.approx(1e-4, rel=1e-3)  # the slowest sine


def test_padding_before_a_text_does_not_change_states():
    """Positions count what is before, as in stock Marian: so the same text is compared behind other padding."""
    model = tiny_ssru().eval()
    mask = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 1, 1]])
    changed = TEXT.clone()
    changed[mask == 0] = 8
    logits = [model(**BATCH, decoder_input_ids=ids, decoder_attention_mask=mask).logits for ids in (TEXT, changed)]
    assert_close(logits[0][mask == 1], logits[1][mask == 1])
    unmasked = model(**BATCH, decoder_input_ids=changed).logits
    assert (unmasked - logits[0])[mask == 1].abs().max() > 1e-3


@pytest.mark.parametrize("beams", [1, 3])
def test_the_cache_does_not_grow(beams):
    model = tiny_ssru().eval()
    kept = []
    for steps in (2, 9):
        output = model.generate(
            **BATCH, num_beams=beams, min_new_tokens=steps, max_new_tokens=steps, return_dict_in_generate=True
        )
        layers = getattr(output, CACHE).self_attention_cache.layers
        assert [layer.get_seq_length() for layer in layers] == [steps] * 2
        kept.append([layer.tensors["state"].shape for layer in layers])
    assert kept[0] == kept[1] == [(2 * beams, model.config.d_model)] * 2


def test_another_cache_is_refused():
    model = tiny_ssru()
    with pytest.raises(ValueError, match=r"`cache_implementation` must be None.*'static'"):
        model.generate(**BATCH, cache_implementation="static")
    output = model(**BATCH, decoder_input_ids=TEXT[:, :2], use_cache=True)
    with pytest.raises(ValueError, match=r"cannot be cropped"):
        getattr(output, CACHE).crop(-1)
    with pytest.raises(ValueError, match=rf"`{CACHE}` must be a LayerStatesCache, got a DynamicCache"):
        model(**BATCH, decoder_input_ids=TEXT, cache=type(getattr(output, CACHE).cross_attention_cache)())


def shortlisted(lists: list[list[int]], first: int = 1):
    """Return a model with these lists, one for each token of the vocabulary."""
    model = tiny_ssru(shortlist_size=sum(map(len, lists)), shortlist_first=first).eval()
    model.shortlist_ends[:] = torch.tensor([len(of) for of in lists]).cumsum(0)
    model.shortlist_tokens[:] = torch.tensor([token for of in lists for token in of])
    return model


SEARCHES = [{}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 2}]


@pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beams", "sampling"])
def test_a_shortlist_of_all_tokens_changes_nothing(search):
    vocabulary = tiny_ssru().config.vocab_size
    model = shortlisted([[] for _ in range(vocabulary - 1)] + [list(range(vocabulary))], vocabulary)
    found = []
    for shortlist in (False, True):
        torch.manual_seed(1)
        found.append(model.generate(**BATCH, **search, max_new_tokens=6, shortlist=shortlist))
    assert torch.equal(*found)


@pytest.mark.parametrize("cached", [True, False])
def test_a_search_with_a_shortlist_takes_the_best_token_on_it(cached):
    inputs = {"input_ids": torch.tensor([[4, 5, 2], [5, 4, 2]])}
    vocabulary = tiny_ssru().config.vocab_size
    lists = [[token + 4, 0] if token in (4, 6) else [] for token in range(vocabulary)]
    model = shortlisted(lists, first=2)
    allowed = [0, 1, 2, 4, 5, 8]
    options = {"max_new_tokens": 6, "use_cache": cached, "output_logits": True, "return_dict_in_generate": True}
    output = model.generate(**inputs, **options, eos_token_id=None, shortlist=True)
    text = output.sequences
    for step, found in enumerate(output.logits):
        logits = model(**inputs, decoder_input_ids=text[:, : step + 1]).logits[:, -1]
        assert_close(found[:, allowed].double(), logits[:, allowed], 1e-5)  # `generate` returns float32
        others = [token for token in range(vocabulary) if token not in allowed]
        assert found[:, others].eq(-torch.inf).all()
        assert text[:, step + 1].tolist() == [allowed[n] for n in logits[:, allowed].argmax(dim=-1).tolist()]
    assert not torch.equal(text, model.generate(**inputs, max_new_tokens=6, eos_token_id=None))


def test_tokens_that_are_added_have_no_list(tmp_path):
    vocabulary = tiny_ssru().config.vocab_size
    model = shortlisted([[token + 4, 0] if token in (4, 6) else [] for token in range(vocabulary)])
    model.resize_token_embeddings(vocabulary + 2)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path, dtype=torch.float64).eval()
    for one in (model.eval(), again):
        tokens, weight, bias = one._candidates(torch.tensor([[4, vocabulary + 1]]))
        assert tokens.tolist() == [0, 4, 8, vocabulary + 1]
        assert (weight.shape, bias.shape) == ((4, one.config.d_model), (4,))
    inputs = {"input_ids": torch.tensor([[4, vocabulary + 1, 2]])}
    assert again.generate(**inputs, max_new_tokens=3, shortlist=True).shape[1] > 1


def test_a_shortlist_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"`shortlist` needs a model that was imported with its shortlist"):
        tiny_ssru().generate(**BATCH, shortlist=True)
    with pytest.raises(Exception, match=r"`shortlist_size` must be >= 0, got -1"):
        SSRUConfig(shortlist_size=-1)


@pytest.mark.parametrize("switches", [{}, {"calibration": "gated", "leaky": True}], ids=["off", "gated, leaky"])
def test_gradients_with_checkpointing_are_those_without(switches):
    found = []
    for checkpointed in (False, True):
        model = tiny_ssru(dropout=0.0, **switches).train()
        if checkpointed:
            enable = getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)
            enable({"use_reentrant": False})
        model(**tiny_batch()).loss.backward()
        found.append(gradients(model))
    assert_gradients_close(*found, 1e-10)
    assert "model.decoder.layers.0.self_attn.forget.weight" in found[0]


@pytest.mark.processor
def test_half_precision_keeps_its_state_in_float32():
    exact = tiny_ssru(max_position_embeddings=40).eval()
    text = TEXT.repeat(1, 8)  # 40 steps
    expected = exact(**BATCH, decoder_input_ids=text).logits
    model = tiny_ssru(max_position_embeddings=40).to(torch.bfloat16).eval()
    output = model(**BATCH, decoder_input_ids=text, use_cache=True)
    assert output.logits.dtype == torch.bfloat16
    assert getattr(output, CACHE).self_attention_cache.layers[0].tensors["state"].dtype == torch.float32
    assert (output.logits - expected).abs().mean() < 0.03 * expected.abs().mean()


def test_a_field_out_of_range_is_named():
    with pytest.raises(Exception, match=r"`layer_norm_eps` must be > 0 and at most 1, got 0"):
        SSRUConfig(layer_norm_eps=0)
