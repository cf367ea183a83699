"""Logits with a cache are those without: every family, kind of cache and kernel, padded and unpadded, in float64.

A prefill of several tokens, then one, then several: which mask a kernel gets depends on each of these.
"""

import inspect
from contextlib import nullcontext
from functools import partial

import pytest
import torch
from adapter_helpers import BACKBONES, adapted, save_base
from discrete_helpers import KINDS, tiny_discrete
from helpers import FAMILIES, SWITCHES, assert_close, tiny_model
from luong_helpers import tiny_luong
from marian_helpers import tiny_ssru
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, StaticCache

from hf_attncal import families
from hf_attncal.models.cache import CACHE, LayerStatesCache, RecurrentCache, named_cache

PAD = 1
TEXT = torch.tensor([[2, 6, 10, 4, 9, 3, 8], [5, 9, 7, 2, 4, 6, 3]])
PARTS = (3, 1, 3)
SOURCE = torch.tensor([[4, 7, 3, 9, 2], [5, 8, 6, 10, 2]])
PADDED_SOURCE = torch.tensor([[4, 7, 3, 9, 2], [5, 8, 2, PAD, PAD]])
CHOSEN = ("annealed", "gated, renormalized", "gated, leaky, gumbel, head", "leaky")
CALIBRATED = {
    "off": {},
    "copy": {"copy": True},
    "output gate": {"output_gate": True},
    **{name: SWITCHES[name] for name in CHOSEN},
}
DISCRETE = {
    "hard": {},
    "soft": {"hard_attention": False},
    "hard, leaky, relative": {"leaky": True, "relative_positions": 2},
    "soft, leaky, relative": {"hard_attention": False, "leaky": True, "relative_positions": 2},
}
ROOM = TEXT.shape[1] + 2


def cache_of(config, kind: str):
    """An empty cache, a static one with room behind the text."""
    halves = [
        DynamicCache(config=config) if kind == "dynamic" else StaticCache(config=config, max_cache_len=length)
        for length in (ROOM, SOURCE.shape[1])
    ]
    return EncoderDecoderCache(*halves) if config.is_encoder_decoder else halves[0]


def assert_cached_is_uncached(model, cache, padded: bool) -> None:
    """Assert that the logits of `PARTS` equal one pass; a decoder without an encoder has its padding in front."""
    name, batch, text_mask = "decoder_input_ids", {}, None
    if model.config.is_encoder_decoder:
        batch = {"input_ids": PADDED_SOURCE if padded else SOURCE}
        if padded:
            batch["attention_mask"] = batch["input_ids"].ne(PAD).long()
    else:
        name = "input_ids"
        if padded:
            text_mask = torch.ones_like(TEXT)
            text_mask[1, :2] = 0
    model.eval()
    done, logits = 0, []
    with torch.no_grad():
        mask = {} if text_mask is None else {"attention_mask": text_mask}
        whole = model(**batch, **mask, **{name: TEXT}, use_cache=False).logits
        for part in TEXT.split(PARTS, dim=1):
            done += part.shape[1]
            mask = {} if text_mask is None else {"attention_mask": text_mask[:, :done]}
            output = model(**batch, **mask, **{name: part}, **named_cache(cache), use_cache=True)
            logits.append(output.logits)
    found = torch.cat(logits, dim=1)
    if text_mask is not None:
        found, whole = found[text_mask.bool()], whole[text_mask.bool()]
    assert_close(found, whole, 1e-10, "logits")
    if not padded:
        changed = torch.cat([TEXT.roll(1, dims=0)[:, :-1], TEXT[:, -1:]], dim=1)
        with torch.no_grad():
            other = model(**batch, **{name: changed}, use_cache=False).logits
        assert (other - whole)[:, -1].abs().max() > 1e-6, "the past does not matter: nothing was compared"


every_cache = pytest.mark.parametrize("kind", ["dynamic", "static"])
every_kernel = pytest.mark.parametrize("kernel", ["eager", "sdpa"])
padded_or_not = pytest.mark.parametrize("padded", [False, True], ids=["unpadded", "padded"])


@padded_or_not
@every_kernel
@every_cache
@pytest.mark.third("switches", "kind", "kernel", "padded")
@pytest.mark.parametrize("switches", CALIBRATED)
def test_calibrated(family, switches, kind, kernel, padded):
    model = tiny_model(family, attn_implementation=kernel, **CALIBRATED[switches])
    assert_cached_is_uncached(model, cache_of(model.config, kind), padded)


@padded_or_not
@every_kernel
@every_cache
@pytest.mark.third("switches", "kind", "kernel", "padded")
@pytest.mark.parametrize("switches", DISCRETE)
@pytest.mark.parametrize(("model_kind", "streams"), KINDS)
def test_discrete(model_kind, streams, switches, kind, kernel, padded):
    model = tiny_discrete(model_kind, streams=streams, attn_implementation=kernel, **DISCRETE[switches])
    assert_cached_is_uncached(model, cache_of(model.config, kind), padded)


@padded_or_not
@pytest.mark.parametrize(
    "switches", [{}, {"cell": "gru", "input_feeding": False}, {"calibration": "gated", "leaky": True}], ids=str
)
def test_recurrent(switches, padded):
    assert_cached_is_uncached(tiny_luong(**switches), RecurrentCache(), padded)


@padded_or_not
@pytest.mark.parametrize("switches", [{}, {"calibration": "gated", "leaky": True}, {"copy": True}], ids=str)
def test_with_recurrent_layers(switches, padded):
    model = tiny_ssru(**switches)
    assert_cached_is_uncached(model, LayerStatesCache(model.config.decoder_layers), padded)


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bases")
    return {backbone: save_base(folder, backbone) for backbone in BACKBONES}


@padded_or_not
@every_kernel
@every_cache
@pytest.mark.third("backbone", "kind", "kernel", "padded")
@pytest.mark.parametrize("settings", [{"calibration": "gated"}, {"calibration": None, "leaky": True}], ids=str)
@pytest.mark.parametrize("backbone", BACKBONES)
def test_adapted(bases, backbone, settings, kind, kernel, padded):
    model = adapted(bases[backbone], **settings)
    model.base_model.model.set_attn_implementation(kernel)
    assert_cached_is_uncached(model, cache_of(model.config, kind), padded)


MADE = {
    "marian": lambda: tiny_model("marian", calibration="gated"),
    "bart": lambda: tiny_model("bart", leaky=True),
    "ssru": tiny_ssru,
    "luong": tiny_luong,
    **{f"discrete-{kind}-{streams}": partial(tiny_discrete, kind, streams=streams) for kind, streams in KINDS},
}


@pytest.mark.parametrize("made", MADE)
def test_callers_name_the_cache_as_any_transformers_does(made):
    model = MADE[made]().eval()
    prefix, batch = ("decoder_", {"input_ids": SOURCE}) if model.config.is_encoder_decoder else ("", {})
    assert {"cache", "past_key_values"} & inspect.signature(model.forward).parameters.keys() == {CACHE}
    with torch.no_grad():
        start, end = batch | {f"{prefix}input_ids": TEXT[:, :3]}, batch | {f"{prefix}input_ids": TEXT[:, 3:]}
        caches = [getattr(model(**start, use_cache=True), CACHE) for _ in range(2)]
        new = model(**end, cache=caches[0])
        with pytest.warns(FutureWarning, match="`past_key_values` is dep") if CACHE == "cache" else nullcontext():
            old = model(**end, past_key_values=caches[1])
    assert [cache.get_seq_length() for cache in caches] == [TEXT.shape[1]] * 2
    assert torch.equal(new.logits, old.logits)


def test_every_family_with_a_cache_is_here():
    """A family added to the table has to be added to this file."""
    generating = {name for name, family in families.FAMILIES.items() if hasattr(family.model_class, "generate")}
    assert generating == {f"attncal_{name}" for name in FAMILIES} | {"discrete_transformer", "luong", "ssru"}
