"""`generate()` of the recurrent models, in float64: whatever the cache holds, it gives what passes without it give."""

import copy
import functools

import pytest
import torch
from helpers import assert_close
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal import LuongConfig, LuongForConditionalGeneration
from hf_attncal.models.cache import CACHE, NamedTensors, RecurrentCache

PAD, EOS, START = 1, 2, 2
SIZE = {"vocab_size": 31, "d_model": 8, "embedding_size": 6, "encoder_layers": 2, "decoder_layers": 2}
SIZE |= {"window_width": 1, "max_source_length": 9, "dropout": 0.3}
SETTINGS = {
    "general": {},
    "unfed": {"input_feeding": False},
    "gru": {"cell": "gru"},
    "both directions, gate": {"bidirectional": True, "selective_gate": True, "score": "dot"},
    "concat": {"score": "concat"},
    "location": {"score": "location"},
    "local-m": {"attention_window": "local-m"},
    "local-p": {"attention_window": "local-p"},
    "no attention": {"attention_window": None, "input_feeding": False},
    "gated, leaky": {"calibration": "gated", "leaky": True},
    "annealed, gumbel, unfed": {
        "calibration": "annealed",
        "annealing_steps": 10,
        "gumbel": True,
        "input_feeding": False,
    },
}
SOURCE = torch.tensor([[4, 7, 3, 9, 5, 2], [5, 8, 10, 2, PAD, PAD], [6, 2, PAD, PAD, PAD, PAD]])
BATCH = {"input_ids": SOURCE, "attention_mask": SOURCE.ne(PAD).long()}
PREFIX = torch.tensor([[START, 5, 8], [START, 9, 4], [START, 3, 7]])
NEXT = torch.tensor([[6], [10], [4]])


@functools.cache
def random_model(setting: str) -> LuongForConditionalGeneration:
    """A model that tests share and do not change, with the first seed whose three translations differ."""
    for seed in range(100):
        torch.manual_seed(seed)
        model = LuongForConditionalGeneration(LuongConfig(**SIZE | SETTINGS[setting])).double().eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn_like(parameter) * (1.0 if parameter.dim() > 1 else 0.3))
            model.lm_head.bias[PAD], model.lm_head.bias[EOS] = -100.0, 1.5
        if model.config.calibration == "annealed":
            model.set_annealing_step(4)
        if all(len({str(row) for row in generate(model, num_beams=n).sequences.tolist()}) == 3 for n in (1, 20)):
            return model
    raise AssertionError(f"no seed gives a model ({setting}) with three different translations")


@pytest.fixture(params=list(SETTINGS))
def model(request: pytest.FixtureRequest) -> LuongForConditionalGeneration:
    return random_model(request.param)


def generate(model, batch: dict = BATCH, **options):
    options = {"max_new_tokens": 8, "num_beams": 1, "do_sample": False} | options
    return model.generate(**batch, **options, return_dict_in_generate=True, output_logits=True, output_scores=True)


@torch.no_grad()
def log_probabilities(model, sequences: torch.Tensor, sources: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities of all tokens after the first in one pass, 0 after the end, (batch, steps)."""
    batch = {name: tensor[sources] for name, tensor in BATCH.items()}
    logits = model(**batch, decoder_input_ids=sequences[:, :-1], use_cache=False).logits
    picked = logits.log_softmax(dim=-1).gather(-1, sequences[:, 1:, None]).squeeze(-1)
    return picked * real_tokens(sequences)


def real_tokens(sequences: torch.Tensor) -> torch.Tensor:
    ended = sequences[:, 1:].eq(EOS).long()
    return ended.cumsum(dim=1) - ended == 0


def test_step_by_step_is_the_whole_target_at_once(model):
    tokens = torch.cat([PREFIX, NEXT], dim=1)
    with torch.no_grad():
        whole = model(**BATCH, decoder_input_ids=tokens, output_attentions=True, use_cache=False)
        assert getattr(whole, CACHE) is None
        cache, logits, weights = None, [], []
        for part in tokens.split([1, 2, 1], dim=1):
            step = model(**BATCH, decoder_input_ids=part, cache=cache, use_cache=True, output_attentions=True)
            cache = getattr(step, CACHE)
            logits.append(step.logits)
            weights += step.cross_attentions or ()
    assert isinstance(cache, RecurrentCache)
    assert cache.get_seq_length() == 4
    assert_close(torch.cat(logits, dim=1), whole.logits, 1e-10)
    if whole.cross_attentions is not None:
        assert_close(torch.cat(weights, dim=2), whole.cross_attentions[0], 1e-10)


@pytest.mark.half("model", "options")
@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 20}, {"num_beams": 3, "do_sample": True}, {"do_sample": True}], ids=str
)
def test_with_the_cache_is_without_it(model, options: dict):
    found = []
    for use_cache in (True, False):
        torch.manual_seed(5)
        found.append(generate(model, use_cache=use_cache, **options))
    assert found[0].sequences.tolist() == found[1].sequences.tolist()
    for step, expected in zip(found[0].logits, found[1].logits, strict=True):
        torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-5)


def test_sources_stay_where_they_are(monkeypatch):
    """While beams move within their sentences; what is kept of the sources is not copied."""
    model, taken = random_model("general"), []
    take = NamedTensors.batch_select_indices
    monkeypatch.setattr(
        NamedTensors, "batch_select_indices", lambda self, rows: taken.append(self.steps) or take(self, rows)
    )
    generate(model, num_beams=4)
    assert len(taken) > 2
    assert 0 not in taken


def test_beam_scores_are_those_of_the_sequences(model):
    """Beams move between rows of the state: their scores are computed again from the finished sequences."""
    output = generate(model, num_beams=20, num_return_sequences=3, length_penalty=1.0)
    found = log_probabilities(model, output.sequences, torch.arange(3).repeat_interleave(3))
    expected = found.sum(dim=1) / real_tokens(output.sequences).sum(dim=1)
    assert_close(output.sequences_scores.double(), expected, 1e-5)


def slow_beam_search(model, source: torch.Tensor, beams: int, steps: int, penalty: float) -> list[int]:
    """Search for one sentence; every step reads every prefix again, up to the last step."""
    running, ended = [(0.0, [START])], []
    for step in range(1, steps + 1):
        prefixes = torch.tensor([prefix for _, prefix in running])
        with torch.no_grad():
            logits = model(source.expand(len(prefixes), -1), decoder_input_ids=prefixes, use_cache=False).logits
        candidates = sorted(
            (
                (score + log, [*prefix, token])
                for (score, prefix), logs in zip(running, logits[:, -1].log_softmax(dim=-1).tolist(), strict=True)
                for token, log in enumerate(logs)
            ),
            reverse=True,
        )
        over = [prefix[-1] == EOS or step == steps for _, prefix in candidates]
        best = zip(candidates[:beams], over[:beams], strict=True)
        ended += [(score / step**penalty, prefix) for (score, prefix), end in best if end]
        running = [candidate for candidate, end in zip(candidates, over, strict=True) if not end][:beams]
    return max(ended)[1]


@pytest.mark.half("model", "penalty")
@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_beam_search_is_the_slow_one(model, penalty: float):
    """A beam of 20; scores are divided by length ** penalty, and the search ends when no beam can win any more."""
    options = {"num_beams": 20, "length_penalty": penalty, "early_stopping": "never", "max_new_tokens": 5}
    found = generate(model, **options).sequences.tolist()
    for row, source in zip(found, SOURCE, strict=True):
        expected = slow_beam_search(model, source[source != PAD], 20, 5, penalty)
        assert row == expected + [PAD] * (len(row) - len(expected))


def test_an_empty_source_is_generated_from(model):
    """One whose every token is padding; the others are not touched by it."""
    mask = BATCH["attention_mask"].clone()
    mask[1] = 0
    found = generate(model, {"input_ids": SOURCE, "attention_mask": mask}, num_beams=4)
    expected = generate(model, num_beams=4).sequences
    assert all(scores.isfinite().any(dim=-1).all() for scores in found.logits)
    for row in (0, 2):
        shared = min(found.sequences.shape[1], expected.shape[1])
        assert found.sequences[row, :shared].tolist() == expected[row, :shared].tolist()


def test_a_batch_is_its_sentences(model):
    for options in ({}, {"num_beams": 4}):
        batched = generate(model, **options).sequences
        for n, row in enumerate(SOURCE):
            alone = generate(model, {"input_ids": row[row != PAD][None]}, **options).sequences[0]
            assert alone.tolist() == batched[n, : len(alone)].tolist()
            assert (batched[n, len(alone) :] == PAD).all()


def test_a_prefix_is_continued(model):
    expected = generate(model, eos_token_id=PAD).sequences
    continued = generate(model, BATCH | {"decoder_input_ids": expected[:, :4]}, max_new_tokens=5, eos_token_id=PAD)
    assert continued.sequences.tolist() == expected.tolist()
    # From the cache of another call, too.
    begun = generate(model, max_new_tokens=3, eos_token_id=PAD)
    given = {"decoder_input_ids": begun.sequences, CACHE: getattr(begun, CACHE)}
    with pytest.raises(ValueError, match=rf"`decoder_attention_mask`.*`{CACHE}`"):
        generate(model, BATCH | given)
    given["decoder_attention_mask"] = torch.ones_like(begun.sequences)
    assert generate(model, BATCH | given, max_new_tokens=5, eos_token_id=PAD).sequences.tolist() == expected.tolist()


def test_attentions_of_beams(model):
    steps = generate(model, num_beams=3, output_attentions=True).cross_attentions
    if model.config.attention_window is None:
        assert set(steps) == {None}
        return
    for (weights,) in steps:
        assert weights.shape == (9, 1, 1, 6)
        assert (weights[3:6, ..., 4:] == 0).all()


OPERATIONS = {
    "nothing": (lambda cache: None, [0, 1, 2]),
    "reorder": (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 1])), [2, 0, 1]),
    "select": (lambda cache: cache.batch_select_indices(torch.tensor([2, 1])), [2, 1]),
    "repeat": (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
    "beams": (
        lambda cache: (cache.batch_repeat_interleave(2), cache.reorder_cache(torch.tensor([1, 0, 2, 2, 5, 5]))),
        [0, 0, 1, 1, 2, 2],
    ),
    "sentences of beams": (
        lambda cache: (cache.batch_repeat_interleave(2), cache.reorder_cache(torch.tensor([4, 5, 0, 1, 3, 2]))),
        [2, 2, 0, 0, 1, 1],
    ),
    "beams apart": (
        lambda cache: (cache.batch_repeat_interleave(2), cache.reorder_cache(torch.tensor([4, 0, 1, 5]))),
        [2, 0, 0, 2],
    ),
    "crop of nothing": (lambda cache: cache.crop(0), [0, 1, 2]),
    "copy": (lambda cache: copy.deepcopy(cache).reorder_cache(torch.tensor([2, 0, 1])), [0, 1, 2]),
}


@pytest.mark.half("model", "operation")
@pytest.mark.parametrize("operation", OPERATIONS)
def test_operations_on_the_cache(model, operation: str):
    operate, rows = OPERATIONS[operation]
    with torch.no_grad():
        cache = getattr(model(**BATCH, decoder_input_ids=PREFIX, use_cache=True), CACHE)
        operate(cache)
        # What the cache holds of the source is not read again.
        source = {"encoder_outputs": BaseModelOutput(torch.full((len(rows), 6, 8), torch.nan))}
        step = model(**source, decoder_input_ids=NEXT[rows], cache=cache).logits[:, -1]
        target = torch.cat([PREFIX, NEXT], dim=1)[rows]
        whole = model(**{name: t[rows] for name, t in BATCH.items()}, decoder_input_ids=target, use_cache=False)
    assert_close(step, whole.logits[:, -1], 1e-10)


def test_a_reset_cache_serves_other_sentences(model):
    cache = RecurrentCache()
    for rows in ([0, 1, 2], [2, 1]):
        cache.reset()
        assert cache.get_seq_length() == 0
        batch = {name: tensor[rows] for name, tensor in BATCH.items()}
        with torch.no_grad():
            cached = model(**batch, decoder_input_ids=PREFIX[rows], cache=cache, use_cache=True)
            whole = model(**batch, decoder_input_ids=PREFIX[rows], use_cache=False)
        assert_close(cached.logits, whole.logits)
        assert getattr(cached, CACHE) is cache


def test_the_source_is_projected_once_and_kept_once_for_all_beams(monkeypatch):
    model = random_model("gated, leaky")
    calls = []
    project = model.model.decoder.attention.key_projection.forward
    monkeypatch.setattr(
        model.model.decoder.attention.key_projection, "forward", lambda x: calls.append(x.shape) or project(x)
    )
    output = generate(model, num_beams=4)
    assert len(output.logits) > 2
    assert calls == [(3, 1, 6, 8)]
    cache = getattr(output, CACHE)
    assert {name: len(tensor) for name, tensor in cache.source.tensors.items()} == dict.fromkeys(
        ("values", "keys", "real", "positions", "mask_keys"), 3
    )
    assert len(cache.state.tensors["state"]) == 12


# ---- what is refused ----


def test_other_caches_and_ways_back_are_refused():
    model = random_model("general")
    with pytest.raises(ValueError, match=r"`cache_implementation`.*got 'static'"):
        generate(model, cache_implementation="static")
    with pytest.raises(ValueError, match=rf"`{CACHE}`.*RecurrentCache.*got a EncoderDecoderCache"):
        generate(model, BATCH | {CACHE: EncoderDecoderCache(DynamicCache(), DynamicCache())})
    with torch.no_grad():
        cache = getattr(model(**BATCH, decoder_input_ids=PREFIX, use_cache=True), CACHE)
    with pytest.raises(ValueError, match="recurrent state cannot be cropped"):
        cache.crop(-1)


def test_assisted_generation_is_refused():
    model, one = random_model("general"), {"input_ids": SOURCE[:1]}
    for assistance in ({"assistant_model": copy.deepcopy(model)}, {"prompt_lookup_num_tokens": 2}):
        with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
            generate(model, one, **assistance)
