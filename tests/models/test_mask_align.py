"""Mask-Align against one pair, one position at a time; what is hidden; limits; and the habits of transformers."""

import itertools
import re
from collections.abc import Sequence
from functools import partial

import pytest
import reference
import torch
from helpers import (
    assert_close,
    assert_gradients_close,
    assert_identical,
    batch_of_pairs,
    enable_checkpointing,
    gradients,
    largest_difference,
    scatter,
)
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

from hf_attncal import MaskAlignConfig, MaskAlignModel
from hf_attncal.models.configuration_mask_align import PREDICTIONS
from hf_attncal.models.functional_jumps import initial_jumps
from hf_attncal.models.mask_align_layers import RealTokens, eager_attention_forward, sinusoidal_positions
from hf_attncal.models.mask_align_prediction import (
    PREDICTION_HEADS,
    AttentionPrediction,
    MixturePrediction,
    sampled_types,
)

TINY = {
    "vocab_size": 13,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "attention_heads": 2,
    "ffn_dim": 6,
    "dropout": 0.0,
    "max_position_embeddings": 12,
}
# Every combination of switches that goes another way through the code.
SWITCHES = {
    "attention": {},
    "attention, shared": {"share_embeddings": True, "diagonal_bias": 1.5},
    "attention, bare": {"leaky": False, "mask_diagonal": False},
    "attention, sampled": {"sampled_softmax": True, "leaky": False},
    "mixture": {"prediction": "mixture"},
    "mixture, diagonal": {"prediction": "mixture", "diagonal_bias": 2, "sampled_softmax": True},
    "mixture, embeddings": {"prediction": "mixture", "emission": "embeddings", "diagonal_bias": 2},
    "mixture, bare": {"prediction": "mixture", "leaky": False, "mask_diagonal": False},
    "mixture, jumps": {"prediction": "mixture", "max_jump": 2, "uniform_jump": 0.3, "diagonal_bias": 2},
    "mixture, jumps, bare": {"prediction": "mixture", "max_jump": 1, "leaky": False, "mask_diagonal": False},
    "mixture, shared": {"prediction": "mixture", "share_embeddings": True, "leaky": False},
}
# Of different lengths, with a token that occurs twice; the last two have a side of one token, which has no context.
PAIRS = [([4, 7, 3, 9], [6, 10, 6]), ([5, 8], [9, 3]), ([5, 8, 11], [2]), ([1], [7, 4])]
NAMED_LOSSES = ("loss", "prediction_loss", "agreement_loss", "entropy_loss", "guided_loss", "prediction_accuracy")
DIRECTIONS = ("forward_direction", "backward_direction")


def tiny_model(dtype: torch.dtype = torch.float64, **config) -> MaskAlignModel:
    """A random model with scattered parameters and token counts; `config` overrides fields."""
    torch.manual_seed(3)
    model = MaskAlignModel(MaskAlignConfig(**TINY | config))
    generator = torch.Generator().manual_seed(1)
    model.set_token_counts(*(torch.randint(0, 9, (2, model.config.vocab_size), generator=generator)))
    model.to(dtype)
    scatter(model)
    for jumps in tables(model).values():
        jumps.copy_(0.1 + torch.rand(jumps.shape, generator=generator, dtype=jumps.dtype))
    return model.eval()


def tables(model: MaskAlignModel) -> dict[str, torch.Tensor]:
    """The jumps of each direction, if it has some."""
    if model.config.max_jump is None:
        return {}
    return {name: getattr(model, name).prediction.jumps for name in DIRECTIONS}


batch_of = partial(batch_of_pairs, vocab_size=TINY["vocab_size"])


def links_of(pairs: Sequence[tuple[list[int], list[int]]], null: bool = True) -> list[torch.Tensor]:
    """Links of each pair, (target, source): tokens with one, with several, and, with `null`, with none."""
    generator = torch.Generator().manual_seed(2)
    links = [(torch.rand(len(t), len(s), generator=generator) > 0.6).double() for s, t in pairs]
    for matrix in [] if null else links:
        matrix[0] = matrix[:, 0] = 1
    return links


def padded(matrices: Sequence[torch.Tensor], rows: int, columns: int) -> torch.Tensor:
    """One (batch, rows, columns) tensor with zeros at padding."""
    return torch.stack([F.pad(m, (0, columns - m.shape[1], 0, rows - m.shape[0])) for m in matrices])


def slow_twin(model: MaskAlignModel) -> reference.SlowMaskAlign:
    """Return the same function with the same parameters, computed by tests/reference.py."""
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    frequencies = model.source_frequency, model.target_frequency
    return reference.SlowMaskAlign(parameters, model.config, frequencies, tables(model))


# ---- the whole model ----


@pytest.mark.parametrize("name", SWITCHES)
def test_losses_weights_and_gradients_equal_reference(name):
    """Training mode (label smoothing, sampling), without dropout; every pair of a padded batch, with given links."""
    weights = {"agreement_weight": 3.0, "entropy_weight": 0.7, "guide_weight": 0.4, "normalizer_penalty": 0.3}
    model = tiny_model(**SWITCHES[name] | weights).train()
    batch, links = batch_of(PAIRS), links_of(PAIRS, null=model.config.leaky)
    width = batch["target_input_ids"].shape[1], batch["input_ids"].shape[1]
    outputs = model(**batch, links=padded(links, *width), return_loss=True, agreement_scale=0.5)
    outputs.loss.backward()

    twin = slow_twin(model)
    expected = twin.losses(PAIRS, links=links, agreement_scale=0.5)
    names = [loss for loss in NAMED_LOSSES if loss != "prediction_accuracy"]
    for loss in names:
        assert_close(outputs[loss], expected[loss], 1e-10, loss)
    for found, null, wanted, shape in (
        (outputs.forward_attention, outputs.forward_null, expected["forward"], width),
        (outputs.backward_attention, outputs.backward_null, expected["backward"], width[::-1]),
    ):
        assert_close(found, padded([w[:, 1:] for w in wanted], *shape), 1e-10)
        assert_close(null, padded([w[:, :1] for w in wanted], shape[0], 1)[..., 0], 1e-10)
    smallest = min(float(w.detach()[w > 0].min()) for w in expected["forward"] + expected["backward"])
    assert smallest > 1e-8  # the floor of logarithms, which the formulas do not have, is out of the way

    expected["loss"].backward()
    slow = {name: p.grad if p.grad is not None else torch.zeros_like(p) for name, p in twin.parameters.items()}
    fast = gradients(model)
    assert_gradients_close(fast, slow, 1e-9)


@pytest.mark.half("name")
@pytest.mark.parametrize("name", SWITCHES)
def test_validation_equals_reference(name):
    """Evaluation mode: no smoothing, the whole vocabulary, and the accuracy, of the mixture too."""
    model = tiny_model(**SWITCHES[name])
    with torch.no_grad():
        outputs = model(**batch_of(PAIRS), return_loss=True)
        expected = slow_twin(model).losses(PAIRS, training=False)
    for loss in ("loss", "prediction_loss", "agreement_loss", "entropy_loss"):
        assert_close(outputs[loss], expected[loss], 1e-10, loss)
    assert float(outputs.prediction_accuracy) == pytest.approx(expected["prediction_accuracy"], abs=1e-6)
    assert outputs.guided_loss is None


@pytest.mark.half("name")
@pytest.mark.parametrize("name", SWITCHES)
def test_inference_equals_reference(name):
    model = tiny_model(**SWITCHES[name])
    outputs, twin = model.alignments(**batch_of(PAIRS)), slow_twin(model)
    assert outputs.loss is None
    for n, (source, target) in enumerate(PAIRS):
        with torch.no_grad():
            forward = twin.inference("forward_direction", source, target)
            backward = twin.inference("backward_direction", target, source)
        assert_close(outputs.forward_attention[n, : len(target), : len(source)], forward[:, 1:], 1e-10)
        assert_close(outputs.backward_attention[n, : len(source), : len(target)], backward[:, 1:], 1e-10)
        assert_close(outputs.forward_null[n, : len(target)], forward[:, 0], 1e-10)
        assert_close(outputs.backward_null[n, : len(source)], backward[:, 0], 1e-10)


def test_the_comparison_with_the_reference_can_fail():
    """A token that sees itself would be another function."""
    model = tiny_model()
    exact = model.alignments(**batch_of(PAIRS)).forward_attention
    slow = slow_twin(tiny_model(mask_diagonal=False)).inference("forward_direction", *PAIRS[0])[:, 1:]
    assert largest_difference(exact[0, :3, :4], slow.detach()) > 1e-3


@pytest.mark.parametrize("name", SWITCHES)
def test_a_single_pair_equals_the_pair_in_a_padded_batch(name):
    """Losses of a batch are the means of its pairs, weighted by tokens or cells; weights do not change."""
    model = tiny_model(**SWITCHES[name])
    links = links_of(PAIRS)
    batch = batch_of(PAIRS, extra=3)
    width = batch["target_input_ids"].shape[1], batch["input_ids"].shape[1]
    with torch.no_grad():
        together = model(**batch, links=padded(links, *width), return_loss=True)
        alone = [
            model(**batch_of([pair]), links=link.unsqueeze(0), return_loss=True)
            for pair, link in zip(PAIRS, links, strict=True)
        ]
    for n, (source, target) in enumerate(PAIRS):
        expected = padded([alone[n].forward_attention[0]], *width)[0]
        assert_close(together.forward_attention[n], expected, 1e-10)
        assert_close(together.backward_null[n, : len(source)], alone[n].backward_null[0], 1e-10)
        assert not together.backward_null[n, len(source) :].any()
        assert not together.forward_null[n, len(target) :].any()
    cells = [len(source) * len(target) for source, target in PAIRS]
    expected = sum(c * output.agreement_loss for c, output in zip(cells, alone, strict=True)) / sum(cells)
    assert_close(together.agreement_loss, expected, 1e-10)
    # Pairs of equal lengths weigh the same in every mean, and so in the sums of the two directions.
    same = [PAIRS[0], ([8, 2, 5, 5], [1, 9, 2])]
    with torch.no_grad():
        both = model(**batch_of(same, extra=3), return_loss=True)
        single = [model(**batch_of([pair]), return_loss=True) for pair in same]
    for loss in ("loss", "prediction_loss", "entropy_loss", "agreement_loss", "prediction_accuracy"):
        mean = (single[0][loss] + single[1][loss]) / 2
        assert float(both[loss]) == pytest.approx(float(mean), abs=1e-6 if "accuracy" in loss else 1e-10), loss


def test_positions_equal_the_definition():
    twin = slow_twin(tiny_model())
    expected = torch.stack([twin.position(p) for p in range(40)])
    assert_close(sinusoidal_positions(40, TINY["d_model"], dtype=torch.float64), expected)
    assert_close(sinusoidal_positions(40, TINY["d_model"], dtype=torch.float32), expected.float(), 1e-5)


# ---- what is hidden ----


def predictions(model: MaskAlignModel, source: list[int], target: list[int]) -> dict[str, torch.Tensor]:
    """Return query and prior weights of each head per direction, and (with "attention") the output layer's input."""
    found, hooks = {}, []
    for name in DIRECTIONS:

        def keep(module, args, output, name=name):
            found[f"{name} query"], found[f"{name} weights"] = output.query[0], output.weights[0].transpose(0, 1)

        direction = getattr(model, name)
        hooks.append(direction.register_forward_hook(keep))
        if model.config.prediction == "attention":

            def keep_output(module, args, output, name=name):
                found[f"{name} output"] = output[0]

            hooks.append(direction.prediction.output_layer_norm.register_forward_hook(keep_output))
    with torch.no_grad():
        model(torch.tensor([source]), None, torch.tensor([target]), None, return_loss=True)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.half("attn_implementation", "prediction", "dtype", "direction", "length")
@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("prediction", ["attention", "mixture"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("length", [5, 2, 1])
def test_no_token_sees_itself(prediction, attn_implementation, dtype, direction, length):
    """Another token at i leaves the prediction at i identical, to the bit, and changes the predictions elsewhere."""
    options = {"prediction": prediction, "attn_implementation": attn_implementation, "diagonal_bias": 1.0}
    model, copying = (tiny_model(dtype, **options, mask_diagonal=hidden) for hidden in (True, False))
    tokens, other = [6, 10, 6, 3, 9][:length], [4, 7, 5]

    def run(model, tokens):
        found = predictions(model, *((other, tokens) if direction == "forward_direction" else (tokens, other)))
        return {key: value for key, value in found.items() if key.startswith(direction)}

    before, seen = run(model, tokens), run(copying, tokens)
    assert len(before) == (3 if prediction == "attention" else 2)
    for i in range(length):
        changed = [*tokens[:i], 12, *tokens[i + 1 :]]
        after, copied = run(model, changed), run(copying, changed)
        for key in before:
            assert_identical(after[key][i], before[key][i], f"{key} {i}")
            for j in set(range(length)) - {i}:
                assert not torch.equal(after[key][j], before[key][j]), f"{key} {j}"
            assert not torch.equal(copied[key][i], seen[key][i]), f"{key} {i} without the mask"


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_the_only_token_of_a_side_is_predicted_from_its_position_and_the_other_side(prediction):
    """All is hidden: it reads zeros, whatever it is, whatever the padding, and its weights are still weights."""
    model = tiny_model(prediction=prediction)
    source, rows = [4, 7, 5], []
    for target in ([6], [11]):
        for extra in (0, 4):
            batch = batch_of([(source, target)], extra)
            outputs = model.alignments(**batch)
            weights = torch.cat([outputs.forward_null[:, :1], outputs.forward_attention[:, 0]], dim=1)
            assert float(weights.sum()) == pytest.approx(1, abs=1e-9)
            rows.append(weights[0, :4])
    for row in rows[1:2]:
        assert_close(row, rows[0], 1e-12)
    if prediction == "attention":  # the posterior of the mixture has seen the token
        assert_close(rows[2], rows[0], 1e-12)
    else:
        assert largest_difference(rows[2], rows[0]) > 1e-3


# ---- limits are identities ----


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_without_leaky_nothing_is_null(prediction):
    for leaky in (False, True):
        outputs = tiny_model(prediction=prediction, leaky=leaky).alignments(**batch_of(PAIRS))
        for attention, null, side in (
            (outputs.forward_attention, outputs.forward_null, "target_attention_mask"),
            (outputs.backward_attention, outputs.backward_null, "attention_mask"),
        ):
            real = batch_of(PAIRS)[side].bool()
            assert_close(attention.sum(dim=2) + null, real.double(), 1e-12)
            assert bool(null.any()) == leaky


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_weights_of_zero_leave_the_prediction_loss(prediction):
    zero = dict.fromkeys(("agreement_weight", "entropy_weight", "guide_weight", "normalizer_penalty"), 0)
    model = tiny_model(prediction=prediction, **zero)
    links = torch.ones(len(PAIRS), 3, 4, dtype=torch.float64)
    outputs = model(**batch_of(PAIRS), links=links, return_loss=True)
    assert_identical(outputs.loss, outputs.prediction_loss)
    model.config.agreement_weight, model.config.entropy_weight = 5.0, 1.0
    for scale in (0.0, 0.25):
        loss = model(**batch_of(PAIRS), return_loss=True, agreement_scale=scale)
        expected = loss.prediction_loss + scale * 5 * loss.agreement_loss + loss.entropy_loss
        assert_close(loss.loss, expected)


def test_null_far_below_every_score_is_no_null():
    leaky, bare = tiny_model(leaky=True), tiny_model(leaky=False)
    bare.load_state_dict(
        {name: value for name, value in leaky.state_dict().items() if "null" not in name}, strict=True
    )
    for direction in DIRECTIONS:
        attention = getattr(leaky, direction).prediction.cross_attn
        query = attention.q_proj
        with torch.no_grad():  # every query is the same, and the NULL key points away from it
            for model in (leaky, bare):
                getattr(model, direction).prediction.cross_attn.q_proj.weight.zero_()
            attention.null.key.copy_(-1e4 * query.bias.unflatten(0, attention.null.key.shape))
    outputs, expected = (model.alignments(**batch_of(PAIRS)) for model in (leaky, bare))
    assert not outputs.forward_null.any()
    assert_close(outputs.forward_attention, expected.forward_attention)


def test_a_diagonal_bias_of_zero_is_no_bias():
    with_bias, without = tiny_model(diagonal_bias=1.0), tiny_model()
    with torch.no_grad():
        for direction in DIRECTIONS:
            getattr(with_bias, direction).prediction.cross_attn.diagonal_bias.zero_()
    without.load_state_dict({k: v for k, v in with_bias.state_dict().items() if "diagonal_bias" not in k})
    outputs, expected = (model.alignments(**batch_of(PAIRS)) for model in (with_bias, without))
    assert_identical(outputs.forward_attention, expected.forward_attention)


def test_a_strong_diagonal_bias_aligns_equal_relative_positions():
    model = tiny_model(leaky=False, diagonal_bias=1.0)
    with torch.no_grad():
        for direction in DIRECTIONS:
            getattr(model, direction).prediction.cross_attn.diagonal_bias.fill_(1e3)
    source, target = [4, 7, 3, 9, 5, 6], [6, 10, 2]
    outputs = model.alignments(**batch_of([(source, target), PAIRS[0]], extra=3))
    # Target token 0 covers the first third: source tokens 0 and 1, at the same distance from its middle.
    for t, s in ((0, (0, 1)), (1, (2, 3)), (2, (4, 5))):
        assert float(outputs.forward_attention[0, t, list(s)].sum()) == pytest.approx(1, abs=1e-9)
    assert outputs.backward_attention[0, :6].argmax(dim=1).tolist() == [0, 0, 1, 1, 2, 2]


# ---- sampled softmax ----


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_a_sample_of_the_whole_vocabulary_is_the_full_softmax(prediction):
    """Every entry occurs, and so often that its chance to be among them is 1."""
    generator = torch.Generator().manual_seed(4)
    pairs = []
    for _ in range(30):
        sides = torch.randperm(12, generator=generator), torch.randperm(12, generator=generator)
        pairs.append(tuple([*side[:11].tolist(), 12] for side in sides))
    models = [tiny_model(prediction=prediction, sampled_softmax=sampled) for sampled in (True, False)]
    for model in models:
        model.source_frequency.fill_(1 / 13)
        model.target_frequency.fill_(1 / 13)
    sampled, full = (model.train()(**batch_of(pairs), return_loss=True) for model in models)
    assert_close(sampled.loss, full.loss, 1e-9)
    sampled.loss.backward()
    full.loss.backward()
    assert_gradients_close(gradients(models[0]), gradients(models[1]), 1e-9)
    # Of fewer tokens the softmax is another.
    few = [model(**batch_of(PAIRS), return_loss=True).prediction_loss.detach() for model in models]
    assert largest_difference(few[0], few[1]) > 1e-3


def test_the_correction_makes_the_sampled_normaliser_unbiased():
    """`E[sum over sampled c of exp(logit_c - log q_c)]` over every text of n tokens is the sum over the vocabulary."""
    frequency = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    logits = torch.tensor([0.3, -1.0, 2.0, 0.7], dtype=torch.float64)
    for n in (1, 3, 5):
        corrected = plain = total = 0.0
        for text in itertools.product(range(4), repeat=n):
            chance = float(frequency[list(text)].prod())
            types, log_probability = sampled_types(torch.tensor(text), frequency)
            assert types.tolist() == sorted(set(text))
            corrected += chance * float((logits[types] - log_probability).exp().sum())
            plain += chance * float(logits[types].exp().sum())
            total += chance
        assert total == pytest.approx(1, abs=1e-12)
        assert corrected == pytest.approx(float(logits.exp().sum()), rel=1e-9)
        assert plain < 0.9 * corrected


def test_candidates_of_extreme_frequencies_are_finite():
    frequency = torch.tensor([1.0, 0.0, 1e-30])
    _, log_probability = sampled_types(torch.tensor([0, 1, 2, 2]), frequency)
    assert torch.isfinite(log_probability).all()
    assert float(log_probability[0]) == 0


def test_token_counts_set_biases_and_frequencies():
    model = MaskAlignModel(MaskAlignConfig(**TINY))
    source, target = torch.arange(13), torch.arange(13).flip(0) * 10
    model.set_token_counts(source, target)
    for frequency, counts, direction in (
        (model.source_frequency, source, model.backward_direction),
        (model.target_frequency, target, model.forward_direction),
    ):
        expected = (counts + 0.01) / (counts + 0.01).sum()
        assert_close(frequency, expected, 1e-7)
        assert_close(direction.prediction.output_bias.detach(), expected.log(), 1e-5)
    with pytest.raises(ValueError, match=r"`target_counts`.*\(13,\).*got \(12,\)"):
        model.set_token_counts(source, target[1:])


# ---- inference ----


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_inference_never_touches_the_output_layer(prediction):
    """Parameters that only predictions need may have any values; all others take part in aligning."""
    model = tiny_model(prediction=prediction, diagonal_bias=1.0)
    expected = model.alignments(**batch_of(PAIRS))
    only_predicts = ("output_bias", "output_layer_norm", "cross_attn.v_proj", "cross_attn.out_proj", "null.value")
    only_predicts += ("prediction.ffn.",)
    if model.config.prediction == "mixture":
        only_predicts = ("output_bias",)
    for name, parameter in model.named_parameters():
        spoilt = any(part in name for part in only_predicts)
        value = parameter.detach().clone()
        parameter.data.fill_(torch.nan)
        outputs = model.alignments(**batch_of(PAIRS))
        parameter.data.copy_(value)
        if spoilt:
            assert_identical(outputs.forward_attention, expected.forward_attention, name)
            assert_identical(outputs.backward_attention, expected.backward_attention, name)
        else:
            both = torch.cat([outputs.forward_attention.flatten(), outputs.backward_attention.flatten()])
            assert not torch.isfinite(both).all(), f"{name} takes no part in aligning"


def test_attention_aligns_in_inference_as_in_validation():
    model = tiny_model()
    aligned, validated = model.alignments(**batch_of(PAIRS)), model(**batch_of(PAIRS), return_loss=True)
    for name in ("forward_attention", "backward_attention", "forward_null", "backward_null"):
        assert_identical(aligned[name], validated[name].detach(), name)


def symmetric_mixture(signed: bool) -> MaskAlignModel:
    """Embeddings of the entries +-e_k, and emissions that are one vector with its values permuted, and `signed`.

    `Z = sum_k 2 cosh(g_k)` is then the same for every source token.
    """
    model = tiny_model(prediction="mixture", vocab_size=2 * TINY["d_model"])
    eye = torch.eye(TINY["d_model"], dtype=torch.float64)
    for table in (model.source_embeddings, model.target_embeddings):
        table.weight.data = torch.cat([eye, -eye])
    signs = torch.tensor([1.0, -1, 1, 1, -1, 1, -1, -1], dtype=torch.float64)
    vector = torch.linspace(-1, 2, TINY["d_model"], dtype=torch.float64)

    def emissions(evidence):
        batch, length = evidence.source.ids.shape
        rows = [vector.roll(s) * (signs.roll(3 * s) if signed else 1 + s) for s in range(1 + length)]
        return torch.stack(rows).expand(batch, -1, -1)

    for direction in DIRECTIONS:
        getattr(model, direction).prediction.emissions = emissions
        getattr(model, direction).prediction.output_bias.data.zero_()
    return model


@pytest.mark.parametrize("constant", [True, False])
def test_the_mixture_aligns_in_inference_as_in_validation_where_the_normaliser_is_constant(constant):
    model = symmetric_mixture(signed=constant)
    aligned, validated = model.alignments(**batch_of(PAIRS)), model(**batch_of(PAIRS), return_loss=True)
    differences = [
        largest_difference(aligned[name], validated[name].detach())
        for name in ("forward_attention", "backward_attention", "forward_null", "backward_null")
    ]
    assert (max(differences) < 1e-12) == constant


# ---- jumps ----


def with_and_without_jumps(dtype: torch.dtype = torch.float64, **config) -> list[MaskAlignModel]:
    """Two models with the same parameters, the first with jumps."""
    options = {"prediction": "mixture", "diagonal_bias": 1.0}
    return [tiny_model(dtype, **options, **jumps) for jumps in ({"max_jump": 2} | config, {})]


def test_jumps_are_used_only_for_aligning():
    """Training losses and gradients equal a model without jumps to the bit; the alignment does not."""
    models = with_and_without_jumps()
    losses = []
    for model in models:
        outputs = model.train()(**batch_of(PAIRS), return_loss=True)
        outputs.loss.backward()
        losses.append((outputs.loss.detach(), outputs.forward_attention.detach(), gradients(model)))
        model.eval()
    assert_identical(losses[0][0], losses[1][0])
    assert_identical(losses[0][1], losses[1][1])
    assert all(torch.equal(losses[0][2][name], losses[1][2][name]) for name in losses[1][2])
    first, zero = (model.alignments(**batch_of(PAIRS)) for model in models)
    assert largest_difference(first.forward_attention, zero.forward_attention) > 1e-2
    assert largest_difference(first.backward_attention, zero.backward_attention) > 1e-2


@pytest.mark.parametrize("limit", ["uniform_jump", "table"])
def test_uniform_jumps_change_nothing(limit):
    model, without = with_and_without_jumps(**({"uniform_jump": 1} if limit == "uniform_jump" else {}))
    for jumps in tables(model).values() if limit == "table" else ():
        jumps.fill_(0.7)
    outputs, expected = (m.alignments(**batch_of(PAIRS)) for m in (model, without))
    for name in ("forward_attention", "backward_attention", "forward_null", "backward_null"):
        assert_close(outputs[name], expected[name])


def test_only_jumps_distinguish_equal_source_tokens():
    """Six equal pairs of tokens and even attention: only the order distinguishes them."""
    model = tiny_model(prediction="mixture", emission="embeddings", max_jump=3, uniform_jump=0.01, leaky=False)
    for direction in DIRECTIONS:
        getattr(model, direction).prediction.cross_attn.q_proj.weight.data.zero_()
        getattr(model, direction).prediction.cross_attn.q_proj.bias.data.zero_()
    pairs = [([4] * 6, [9] * 6)]
    for name in DIRECTIONS:
        tables(model)[name].copy_(torch.tensor([0.0, 0, 0, 0, 1, 0, 0]) + 1e-3)
    outputs = model.alignments(**batch_of(pairs))
    assert outputs.forward_attention[0].argmax(dim=1).tolist() == list(range(6))
    assert float(outputs.forward_attention[0].diagonal().min()) > 0.9
    tables(model)["forward_direction"].fill_(1)
    even = torch.full((1, 6, 6), 1 / 6, dtype=torch.float64)
    assert_close(model.alignments(**batch_of(pairs)).forward_attention, even)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_jumps_stay_in_float32(dtype, tmp_path):
    """A cast, a saved folder of that type, and a folder loaded in it: the same numbers, which `dtype` cannot hold."""
    model = tiny_model(torch.float32, prediction="mixture", max_jump=2)
    model.forward_direction.prediction.jumps[0] = 1e-10
    expected = {name: table.clone() for name, table in tables(model).items()}
    exact = model.alignments(**batch_of(PAIRS))
    model.save_pretrained(tmp_path / "wide")
    model.to(dtype).save_pretrained(tmp_path / "narrow")
    loaded = [MaskAlignModel.from_pretrained(tmp_path / name, dtype=dtype) for name in ("wide", "narrow")]
    for narrow in (model, *loaded):
        assert narrow.dtype == dtype
        for name, table in tables(narrow).items():
            assert_identical(table, expected[name], name)
        outputs = narrow.alignments(**batch_of(PAIRS))
        assert outputs.forward_attention.dtype == torch.float32
        assert_close(outputs.forward_attention, exact.forward_attention, 0.2)
    assert all(table.dtype == torch.float64 for table in tables(model.double()).values())
    assert all(table.dtype == torch.float32 for table in tables(model.float()).values())


def test_autocast_does_not_reach_the_jumps():
    """Their pass is exact: rows sum to 1 where bfloat16 would have three digits."""
    model = tiny_model(torch.float32, prediction="mixture", max_jump=2)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model.alignments(**batch_of(PAIRS[:1]))
    assert_close(outputs.forward_attention.sum(dim=2) + outputs.forward_null, torch.ones(1, 3), 1e-6)


def test_a_checkpoint_without_jumps_gets_the_initial_ones(tmp_path):
    saved = tiny_model(torch.float32, prediction="mixture")
    saved.save_pretrained(tmp_path)
    assert not tables(MaskAlignModel.from_pretrained(tmp_path))
    loaded = MaskAlignModel.from_pretrained(tmp_path, max_jump=3)
    for name, table in tables(loaded).items():
        assert_identical(table, initial_jumps(3), name)
    for name, value in saved.state_dict().items():
        assert_identical(loaded.state_dict()[name], value, name)
    loaded.forward_direction.prediction.jumps.fill_(0.5)
    loaded.save_pretrained(tmp_path / "again")
    assert (tables(MaskAlignModel.from_pretrained(tmp_path / "again"))["forward_direction"] == 0.5).all()


def test_a_checkpoint_that_has_lost_its_jumps_is_refused(tmp_path):
    tiny_model(torch.float32, prediction="mixture", max_jump=2).save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["forward_direction.prediction.jumps"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"lacks weights.*forward_direction\.prediction\.jumps"):
        MaskAlignModel.from_pretrained(tmp_path)


# ---- configuration and misuse ----


BAD_VALUES = [
    ({"d_model": 12, "attention_heads": 4}, "`d_model` must be a multiple of twice `attention_heads`, got 12 and 4"),
    ({"prediction": "copy"}, "`prediction` must be one of .*'mixture'.*, got 'copy'"),
    ({"max_jump": 3}, "`max_jump` needs `prediction` 'mixture', got 'attention'"),
    ({"uniform_jump": 0}, r"`uniform_jump` must be in \(0, 1\], got 0"),
    ({"emission": "none"}, "`emission` must be one of .*'embeddings'.*, got 'none'"),
    ({"symmetrization": "grow"}, "`symmetrization` must be one of .*'grow-diag'.*, got 'grow'"),
]
BAD_TYPES = [
    ("vocab_size", 3.5),
    ("leaky", "yes"),
    ("mask_diagonal", 1),
    ("prediction", None),
    ("dropout", "0.1"),
    ("agreement_weight", None),
    ("init_std", "small"),
    ("lowercase", "no"),
    ("max_jump", 2.5),
    ("symmetrization", 3),
]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES, ids=[str(values) for values, _ in BAD_VALUES])
def test_a_bad_value_is_an_error_with_its_reason(values, message):
    with pytest.raises(StrictDataclassError, match=message):
        MaskAlignConfig(**values)


@pytest.mark.parametrize(("field", "value"), BAD_TYPES)
def test_a_bad_type_is_an_error_that_names_the_field(field, value):
    with pytest.raises(StrictDataclassError, match=f"(?s)'{field}'.*{re.escape(repr(value))}"):
        MaskAlignConfig(**{field: value})


def test_integers_are_numbers():
    whole = {"dropout": 0, "diagonal_bias": 4, "null_key_std": 1, "alignment_threshold": 1, "entropy_weight": 2}
    assert MaskAlignConfig(**whole).diagonal_bias == 4


TWO = torch.tensor([[4, 5]])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": None}, r"`input_ids` must be \(batch, tokens\) with at least one token, got None"),
        ({"target_input_ids": None}, r"`target_input_ids` must be .*, got None"),
        ({"input_ids": TWO[0]}, r"`input_ids` must be \(batch, tokens\) .*, got \(2,\)"),
        ({"target_input_ids": TWO[:, :0]}, r"`target_input_ids` must be .* at least one token, got \(1, 0\)"),
        ({"input_ids": TWO[:0]}, r"`input_ids` must be .*, got \(0, 2\)"),
        (
            {"input_ids": TWO.repeat(1, 7)},
            r"`input_ids` must have at most `max_position_embeddings` \(12\) tokens, got 14\. `WordAligner` aligns",
        ),
        ({"target_input_ids": TWO.repeat(1, 7)}, r"`target_input_ids` must have at most .* \(12\) tokens, got 14"),
    ],
)
def test_bad_input_is_an_error_with_its_reason(inputs, message):
    with pytest.raises(ValueError, match=message):
        tiny_model()(**{"input_ids": TWO, "target_input_ids": TWO} | inputs)


def test_the_longest_input_is_no_error():
    outputs = tiny_model()(TWO.repeat(1, 6), None, TWO.repeat(1, 6), None)
    assert outputs.forward_attention.shape == (1, 12, 12)


def test_resizing_the_vocabulary_is_refused():
    model = tiny_model()
    with pytest.raises(NotImplementedError, match=r"vocabulary.*fixed"):
        model.resize_token_embeddings(20)
    model.alignments(**batch_of(PAIRS))  # as before


# ---- the habits of transformers ----


@pytest.mark.half("name")
@pytest.mark.parametrize("name", SWITCHES)
def test_a_saved_model_is_the_same_model(name, tmp_path):
    model = tiny_model(torch.float32, **SWITCHES[name], symmetrization="union", lowercase=True)
    model.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).to_dict() | {"_name_or_path": ""} == model.config.to_dict()
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is MaskAlignModel
    assert loaded.state_dict().keys() == model.state_dict().keys()
    for key, value in model.state_dict().items():  # frequencies, too
        assert_identical(loaded.state_dict()[key], value, key)
    outputs, expected = (m.train()(**batch_of(PAIRS), return_loss=True) for m in (loaded, model))
    assert_identical(outputs.loss.detach(), expected.loss.detach())


def test_a_stored_part_is_kept_and_a_missing_part_is_initialised(tmp_path):
    """A model without `leaky` gives a leaky one its weights; NULL starts small, and the biases are not lost."""
    saved = tiny_model(torch.float32, leaky=False)
    saved.save_pretrained(tmp_path)
    loaded = MaskAlignModel.from_pretrained(tmp_path, leaky=True, null_key_std=0.01)
    new = {name for name in loaded.state_dict() if "null" in name}
    assert loaded.state_dict().keys() - saved.state_dict().keys() == new
    for name in new:
        assert 0 < float(loaded.state_dict()[name].abs().max()) < 0.1
    for name, value in saved.state_dict().items():
        assert_identical(loaded.state_dict()[name], value, name)


@pytest.mark.parametrize("leaky", [True, False])
@pytest.mark.parametrize(("prediction", "head"), [("attention", AttentionPrediction), ("mixture", MixturePrediction)])
def test_a_direction_has_what_its_prediction_needs_and_no_more(prediction, head, leaky):
    assert set(PREDICTION_HEADS) == set(PREDICTIONS)
    direction = tiny_model(prediction=prediction, leaky=leaky).backward_direction
    assert type(direction.prediction) is head
    names = {name for name, _ in direction.prediction.named_parameters()}
    reads = prediction == "attention"
    for name, expected in (
        ("cross_attn.v_proj.weight", reads),
        ("cross_attn.out_proj.bias", reads),
        ("cross_attn.null.key", leaky),
        ("cross_attn.null.value", leaky and reads),
        ("ffn.fc1.weight", reads),
        ("emission.weight", not reads),
        ("null_emission", leaky and not reads),
    ):
        assert (name in names) == expected, name
    last = {name for name, _ in direction.decoder_layers[-1].named_parameters()}
    assert ("ffn.fc1.weight" in last) == (not reads)


@pytest.mark.parametrize("std", [None, 0.02])
def test_initial_values(std):
    model = MaskAlignModel(MaskAlignConfig(**TINY | {"d_model": 64, "vocab_size": 400}, init_std=std, diagonal_bias=3))
    mixture = MaskAlignModel(MaskAlignConfig(**TINY, prediction="mixture", null_key_std=0.0))
    prediction = model.forward_direction.prediction
    assert float(model.target_embeddings.weight.detach().std()) == pytest.approx(64**-0.5, rel=0.05)
    assert float(prediction.cross_attn.null.key.detach().std()) == pytest.approx(64**-0.5, rel=0.3)
    expected = (2 / 128) ** 0.5 if std is None else std  # Xavier's uniform: variance 2 / (in + out)
    assert float(prediction.cross_attn.k_proj.weight.detach().std()) == pytest.approx(expected, rel=0.05)
    assert (prediction.cross_attn.diagonal_bias == 3).all()
    assert not prediction.output_bias.any()
    assert not mixture.backward_direction.prediction.null_emission.any()
    assert not mixture.backward_direction.prediction.cross_attn.null.key.any()
    assert_close(model.source_frequency, torch.full((400,), 1 / 400), 1e-9)


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_sdpa_equals_eager(prediction):
    models = [tiny_model(prediction=prediction, attn_implementation=kernel) for kernel in ("eager", "sdpa")]
    losses = []
    for model in models:
        losses.append(model.train()(**batch_of(PAIRS), return_loss=True).loss)
        losses[-1].backward()
    assert_close(losses[1], losses[0], 1e-10)
    assert_gradients_close(gradients(models[1]), gradients(models[0]), 1e-9)


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_gradient_checkpointing_gives_the_same_gradients(prediction, use_reentrant):
    found = []
    for checkpointing in (False, True):
        model = tiny_model(prediction=prediction, dropout=0.2).train()
        if checkpointing:
            enable_checkpointing(model, {"use_reentrant": use_reentrant})
        torch.manual_seed(5)
        model(**batch_of(PAIRS), return_loss=True).loss.backward()
        found.append(gradients(model))
    assert_gradients_close(found[1], found[0])


@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_every_parameter_is_trained(prediction):
    """No parameter is without a gradient, so data-parallel training need not search for unused ones."""
    model = tiny_model(prediction=prediction, diagonal_bias=1.0).train()
    model(**batch_of(PAIRS), return_loss=True).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        if ".k_proj.bias" not in name:  # without NULL a softmax is blind to it
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.processor
@pytest.mark.parametrize("prediction", ["attention", "mixture"])
@pytest.mark.parametrize("sampled", [False, True])
def test_bfloat16_autocast_is_close_and_keeps_weights_and_losses_wide(prediction, sampled):
    model = tiny_model(torch.float32, prediction=prediction, sampled_softmax=sampled).train()
    exact = model(**batch_of(PAIRS), return_loss=True)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(**batch_of(PAIRS), return_loss=True)
        aligned = model.eval().alignments(**batch_of(PAIRS))
    outputs.loss.backward()
    for name in ("loss", "prediction_loss", "agreement_loss", "entropy_loss", "forward_attention", "backward_null"):
        assert outputs[name].dtype == torch.float32, name
        difference = largest_difference(outputs[name].detach(), exact[name].detach())
        assert 0 < difference < 0.05 * max(1, float(exact[name].detach().abs().max())), name
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert aligned.forward_attention.dtype == torch.float32
    assert_close(aligned.forward_attention, model.alignments(**batch_of(PAIRS)).forward_attention, 0.1)


@pytest.mark.processor
@pytest.mark.parametrize("prediction", ["attention", "mixture"])
def test_a_model_in_half_precision_aligns(prediction):
    exact = tiny_model(torch.float32, prediction=prediction)
    for dtype in (torch.bfloat16, torch.float16):
        outputs = tiny_model(dtype, prediction=prediction).alignments(**batch_of(PAIRS))
        assert outputs.forward_attention.dtype == torch.float32
        assert_close(outputs.forward_attention, exact.alignments(**batch_of(PAIRS)).forward_attention, 0.15)


def test_outputs_as_a_tuple():
    model = tiny_model()
    outputs = model(**batch_of(PAIRS))
    parts = model(**batch_of(PAIRS), return_dict=False)
    assert isinstance(parts, tuple)
    assert len(parts) == 4
    assert_identical(parts[0], outputs.forward_attention)
    assert model(**batch_of(PAIRS), return_loss=True, return_dict=False)[0].dim() == 0


# ---- padding ----


def test_real_tokens_are_packed_and_padded_in_their_places():
    """Wherever the padding is; heads too, and both are each other's inverse."""
    real = torch.tensor([[1, 1, 0], [0, 0, 0], [0, 1, 1]]).bool()
    tokens = RealTokens(real, heads=2)
    padded = torch.randn(3, 3, 4)
    packed = tokens.pack(padded)
    assert_identical(packed, torch.stack([padded[0, 0], padded[0, 1], padded[2, 1], padded[2, 2]]))
    assert_identical(tokens.pad(packed), padded * real[:, :, None])
    heads = tokens.split_heads(packed)
    assert_identical(heads, (padded * real[:, :, None]).view(3, 3, 2, 2).transpose(1, 2))
    assert_identical(tokens.join_heads(heads), packed)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_attention_in_a_narrow_type_rounds_once(dtype):
    """The softmax sums more precisely than its type: over many tokens, whose weights a narrow sum would lose."""
    query, key = torch.randn(1, 1, 2, 4, dtype=dtype), torch.randn(1, 1, 3000, 4, dtype=dtype)
    mask = torch.zeros(1, 1, 1, 3000, dtype=dtype)
    mask[..., ::2] = -3e4
    _, weights = eager_attention_forward(None, query, key, key, mask, scaling=0.5)
    scores = torch.matmul(query, key.transpose(2, 3)) * 0.5 + mask
    precise = torch.softmax(scores.double(), dim=-1)
    assert weights.dtype == dtype
    assert not weights[..., ::2].any()
    # Twice what rounding the scores and the weights once changes.
    assert largest_difference(weights.double() / precise.clamp(min=1e-12), (precise > 0).double()) < 4 * torch.finfo(
        dtype
    ).eps * max(1.0, float(scores[..., 1::2].abs().max()))
