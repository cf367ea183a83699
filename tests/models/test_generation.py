"""`generate()` in all its modes, for both backbones and every kind of switch setting, in float64.

The reference is a loop over full forward passes, without any cache; everything else has to agree with it.
"""

import copy
import functools
import logging
from collections import Counter

import pytest
import torch
from helpers import FAMILIES, TINY
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal.models.calibration import MaskNetwork

SETTINGS = {
    "off": {},
    "fixed": {"calibration": "fixed"},
    "annealed": {"calibration": "annealed", "annealing_steps": 10},
    "gated": {"calibration": "gated"},
    "head": {"calibration": "gated", "mask_projection": "head"},
    "renormalized": {"calibration": "gated", "renormalize": True},
    "leaky": {"leaky": True},
    "gumbel": {"gumbel": True},
    "gated-leaky": {"calibration": "gated", "leaky": True},
    "output-gate": {"output_gate": True},
    "output-gate-guided": {"output_gate": True, "guided": True, "guided_head": 1},
    "all": {**{"calibration": "gated", "leaky": True, "gumbel": True, "output_gate": True}, "mask_projection": "head"},
}
# Output weights of their own: a random model that shares them with its input mostly repeats the last token.
SIZE = TINY | {"d_model": 16, "vocab_size": 31, "tie_word_embeddings": False}
CALIBRATED = [name for name, switches in SETTINGS.items() if "calibration" in switches]

# The mechanism is written once for both families.
pytestmark = [pytest.mark.half("family", "model"), pytest.mark.half("family", "calibrated")]

PAD, EOS, START = 1, 2, 2
NEW_TOKENS = 8
SOURCE = torch.tensor([[4, 7, 3, 9, 5, 2], [5, 8, 10, 2, PAD, PAD], [6, 2, PAD, PAD, PAD, PAD]])
BATCH = {"input_ids": SOURCE, "attention_mask": SOURCE.ne(PAD).long()}


@functools.cache
def random_model(family: str, setting: str) -> PreTrainedModel:
    """A model that tests share and do not change, with the first seed that gives translations worth comparing."""
    _, _, config_class, model_class = FAMILIES[family]
    model = model_class(config_class(**SIZE | SETTINGS[setting])).double().eval()
    if model.config.calibration == "annealed":
        model.set_annealing_step(4)
    for seed in range(200):
        randomize(model, seed)
        tokens, _ = greedy_reference(model, BATCH)
        if varied(tokens):
            return model
    raise AssertionError(f"no seed gives a {family} model ({setting}) with varied translations")


def varied(tokens: torch.Tensor) -> bool:
    """Every sentence gets its own translation, of more than one word, and some but not all are finished."""
    finished = tokens[:, 1:].eq(EOS).any(dim=1)
    different = len(tokens.unique(dim=0)) == len(tokens)
    words = [set(row) - {START, EOS, PAD} for row in tokens.tolist()]
    return bool(different and finished.any() and not finished.all() and min(map(len, words)) > 1)


@torch.no_grad()
def randomize(model: PreTrainedModel, seed: int) -> None:
    """Weights at which every part of the model matters to its output; the usual initial ones are too small."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and "norm" not in name:
            std = 1.0 if "embed" in name or "null" in name else parameter.shape[-1] ** -0.5
            std = std if parameter.dim() > 1 else 0.1
            parameter.copy_(std * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    model.final_logits_bias[:, PAD] = -100.0
    model.final_logits_bias[:, EOS] = 1.0


@pytest.fixture(params=list(SETTINGS))
def model(request: pytest.FixtureRequest, family: str) -> PreTrainedModel:
    return random_model(family, request.param)


@pytest.fixture(params=CALIBRATED)
def calibrated(request: pytest.FixtureRequest, family: str) -> PreTrainedModel:
    return random_model(family, request.param)


@pytest.fixture
def key_projections(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Count the key projections of each mask network."""
    calls = Counter()
    project_keys = MaskNetwork.project_keys

    def counted(self, *args):
        calls[id(self)] += 1
        return project_keys(self, *args)

    monkeypatch.setattr(MaskNetwork, "project_keys", counted)
    return calls


@pytest.fixture
def quiet_assistant():
    """transformers' own assisted generation calls `generate()` in a way that it logs as deprecated."""
    logger = logging.getLogger("transformers.generation.utils")
    logger.addFilter(_not_about_arguments)
    yield
    logger.removeFilter(_not_about_arguments)


def _not_about_arguments(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Passing `generation_config` together with")


def generate(model: PreTrainedModel, batch: dict = BATCH, **options):
    """`generate()` with at most `NEW_TOKENS` tokens, everything returned."""
    options = {"max_new_tokens": NEW_TOKENS, "num_beams": 1, "do_sample": False} | options
    return model.generate(**batch, **options, return_dict_in_generate=True, output_logits=True, output_scores=True)


@torch.no_grad()
def greedy_reference(model: PreTrainedModel, batch: dict) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (batch, 1 + steps) and logits (batch, steps, vocabulary) of greedy search by full forward passes."""
    tokens = torch.full((len(batch["input_ids"]), 1), START)
    finished = torch.zeros(len(tokens), dtype=torch.bool)
    logits = []
    while len(logits) < NEW_TOKENS and not finished.all():
        logits.append(model(**batch, decoder_input_ids=tokens, use_cache=False).logits[:, -1])
        token = logits[-1].argmax(dim=-1).masked_fill(finished, PAD)
        tokens = torch.cat([tokens, token[:, None]], dim=1)
        finished |= token == EOS
    return tokens, torch.stack(logits, dim=1)


@torch.no_grad()
def log_probabilities(model: PreTrainedModel, batch: dict, sequences: torch.Tensor) -> torch.Tensor:
    """Log-probability of every token of `sequences` but the first, 0 after the end; without cache. (batch, steps)."""
    logits = model(**batch, decoder_input_ids=sequences[:, :-1], use_cache=False).logits
    picked = logits.log_softmax(dim=-1).gather(-1, sequences[:, 1:, None]).squeeze(-1)
    return picked * real_tokens(sequences)


def real_tokens(sequences: torch.Tensor) -> torch.Tensor:
    """True up to and including the first end of sentence, without the first column. (batch, steps)."""
    ended = sequences[:, 1:].eq(EOS).long().cumsum(dim=1)
    return (ended - sequences[:, 1:].eq(EOS).long()) == 0


def repeat(batch: dict, times: int) -> dict:
    return {name: tensor.repeat_interleave(times, dim=0) for name, tensor in batch.items()}


def assert_same(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal up to rounding; `generate()` returns logits and scores in float32 whatever the model computes in."""
    tolerance = 1e-5 if actual.dtype == torch.float32 else 1e-10
    torch.testing.assert_close(actual, expected.to(actual.dtype), rtol=tolerance, atol=tolerance)


@pytest.mark.half("model", "use_cache")
@pytest.mark.parametrize("use_cache", [True, False])
def test_greedy(model: PreTrainedModel, use_cache: bool):
    tokens, logits = greedy_reference(model, BATCH)
    output = generate(model, use_cache=use_cache)
    assert output.sequences.tolist() == tokens.tolist()
    real = real_tokens(tokens)
    assert_same(torch.stack(output.logits, dim=1)[real], logits[real])


@pytest.mark.half("model", "mode")
@pytest.mark.parametrize("mode", ["beam", "beam sampling", "sampling"])
def test_search_with_cache_is_search_without(model: PreTrainedModel, mode: str):
    options = {"num_beams": 1 if mode == "sampling" else 3, "do_sample": mode != "beam"}
    outputs = []
    for use_cache in (True, False, True):
        torch.manual_seed(5)
        outputs.append(generate(model, use_cache=use_cache, **options))
    for output in outputs[1:]:
        assert output.sequences.tolist() == outputs[0].sequences.tolist()
        for step, expected in zip(output.logits, outputs[0].logits, strict=True):
            finite = step.isfinite() & expected.isfinite()
            assert_same(step[finite], expected[finite])


def test_beam_scores_are_those_of_the_sequences(model: PreTrainedModel):
    """Beams move between rows of the cache: their scores are recomputed from the finished sequences."""
    output = generate(model, num_beams=4, num_return_sequences=3, length_penalty=1.0)
    assert len(output.sequences) == len(output.sequences_scores) == 3 * len(SOURCE)
    log_probs = log_probabilities(model, repeat(BATCH, 3), output.sequences)
    expected = log_probs.sum(dim=1) / real_tokens(output.sequences).sum(dim=1)
    assert_same(output.sequences_scores, expected)

    ranked = output.sequences_scores.view(len(SOURCE), 3)
    assert (ranked.diff(dim=1) <= 0).all()
    best = generate(model, num_beams=4).sequences
    for row, first in zip(best, output.sequences[::3], strict=True):
        assert row[row != PAD].tolist() == first[first != PAD].tolist()


@pytest.mark.half("model", "assistant")
@pytest.mark.usefixtures("quiet_assistant")
@pytest.mark.parametrize("assistant", ["another model", "the model itself"])
def test_assisted_generation(model: PreTrainedModel, family: str, assistant: str):
    """Greedy search, whatever the assistant suggests; rejected tokens are cropped from the cache."""
    helper = model if assistant == "the model itself" else random_model(family, "off")
    sentence = {name: tensor[:1] for name, tensor in BATCH.items()}
    expected, _ = greedy_reference(model, sentence)
    output = generate(model, sentence, assistant_model=copy.deepcopy(helper))
    assert output.sequences.tolist() == expected.tolist()


def test_batch_is_its_sentences(model: PreTrainedModel):
    """A sentence in a padded batch has the same output as by itself, and padding is not read."""
    batched = generate(model)
    garbage = torch.where(SOURCE == PAD, 7, SOURCE)
    unread = generate(model, BATCH | {"input_ids": garbage})
    assert unread.sequences.tolist() == batched.sequences.tolist()
    for i, row in enumerate(SOURCE):
        alone = generate(model, {"input_ids": row[row != PAD][None]})
        steps = len(alone.logits)
        assert alone.sequences[0].tolist() == batched.sequences[i, : steps + 1].tolist()
        assert (batched.sequences[i, steps + 1 :] == PAD).all()
        for step in range(steps):
            assert_same(alone.logits[step][0], batched.logits[step][i])
            assert_same(unread.logits[step][i], batched.logits[step][i])


@pytest.mark.half("model", "num_beams")
@pytest.mark.parametrize("num_beams", [1, 3])
def test_attentions_of_generate(model: PreTrainedModel, num_beams: int):
    """Steps of layers of (batch, heads, 1, source): the weights that a pass over the whole target returns."""
    output = generate(model, num_beams=num_beams, output_attentions=True)
    layers, heads = model.config.decoder_layers, model.config.decoder_attention_heads
    for step in output.cross_attentions:
        assert len(step) == layers
        assert all(weights.shape == (len(SOURCE) * num_beams, heads, 1, SOURCE.shape[1]) for weights in step)
        for weights in step:
            padding = BATCH["attention_mask"].repeat_interleave(num_beams, dim=0)[:, None, None, :] == 0
            assert (weights.masked_select(padding) == 0).all()
    assert any((weights != 0).any() for step in output.cross_attentions for weights in step)
    if num_beams > 1:  # rows are beams, which `beam_indices` maps to sequences; the scores test covers that
        return
    with torch.no_grad():
        whole = model(**BATCH, decoder_input_ids=output.sequences[:, :-1], output_attentions=True, use_cache=False)
    real = real_tokens(output.sequences)[:, None, :, None]
    for layer in range(layers):
        stepwise = torch.cat([step[layer] for step in output.cross_attentions], dim=2)
        assert_same(stepwise * real, whole.cross_attentions[layer] * real)


def test_encoder_outputs_and_embeddings_given(model: PreTrainedModel):
    expected = generate(model).sequences.tolist()
    with torch.no_grad():
        encoded = model.get_encoder()(**BATCH)
        embedded = model.get_encoder().embed_tokens(SOURCE)
    mask = {"attention_mask": BATCH["attention_mask"]}
    given = BaseModelOutput(last_hidden_state=encoded.last_hidden_state)
    assert generate(model, mask | {"encoder_outputs": given}).sequences.tolist() == expected
    assert generate(model, mask | {"inputs_embeds": embedded}).sequences.tolist() == expected
    beams = generate(model, num_beams=3).sequences.tolist()
    given = BaseModelOutput(last_hidden_state=encoded.last_hidden_state)
    assert generate(model, mask | {"encoder_outputs": given}, num_beams=3).sequences.tolist() == beams


def test_target_prefix_given(model: PreTrainedModel):
    """Several target tokens in the first step, then one at a time."""
    expected = generate(model).sequences
    unfinished = expected[:, 1:].ne(EOS).all(dim=1)
    sentences = {name: tensor[unfinished] for name, tensor in BATCH.items()}
    prefix = {"decoder_input_ids": expected[unfinished, :4]}
    continued = generate(model, sentences | prefix, max_new_tokens=NEW_TOKENS - 3).sequences
    assert continued.tolist() == expected[unfinished].tolist()


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}], ids=str)
def test_all_off_generates_what_the_stock_model_generates(family: str, options: dict):
    config_class, model_class, _, _ = FAMILIES[family]
    model, stock = random_model(family, "off"), model_class(config_class(**SIZE)).double().eval()
    stock.load_state_dict(model.state_dict())
    outputs = []
    for candidate in (model, stock):
        torch.manual_seed(1)
        outputs.append(generate(candidate, **options))
    ours, theirs = outputs
    assert ours.sequences.tolist() == theirs.sequences.tolist()
    assert all(torch.equal(a, b) for a, b in zip(ours.logits, theirs.logits, strict=True))


# The mask network's keys: projected once per sentence, and kept with the keys of the cross-attention.


@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"num_beams": 3, "do_sample": True}, {"cache_implementation": "static"}], ids=str
)
def test_mask_keys_are_projected_once(calibrated: PreTrainedModel, key_projections: Counter, options: dict):
    output = generate(calibrated, **options)
    assert len(output.logits) > 2
    assert len(key_projections) == calibrated.config.decoder_layers
    assert set(key_projections.values()) == {1}
