"""Mask-Align against one pair, one position at a time; what is hidden; limits; and the habits of transformers."""

import itertools
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
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel

from hf_attncal import MaskAlignConfig, MaskAlignModel
from hf_attncal.models.functional_jumps import initial_jumps
from hf_attncal.models.mask_align_prediction import sampled_types

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


# ---- limits are identities ----


# ---- sampled softmax ----


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


# ---- configuration and misuse ----


BAD_VALUES = [
    ({"d_model": 12, "attention_heads": 4}, "`d_model` must be a multiple of twice `attention_heads`, got 12 and 4"),
    ({"prediction": "copy"}, "`prediction` must be one of .*'mixture'.*, got 'copy'"),
    ({"max_jump": 3}, "`max_jump` needs `prediction` 'mixture', got 'attention'"),
    ({"uniform_jump": 0}, r"`uniform_jump` must be in \(0, 1\], got 0"),
    ({"emission": "none"}, "`emission` must be one of .*'embeddings'.*, got 'none'"),
    ({"symmetrization": "grow"}, "`symmetrization` must be one of .*'grow-diag'.*, got 'grow'"),
]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES, ids=[str(values) for values, _ in BAD_VALUES])
def test_a_bad_value_is_an_error_with_its_reason(values, message):
    with pytest.raises(StrictDataclassError, match=message):
        MaskAlignConfig(**values)


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


# ---- padding ----
