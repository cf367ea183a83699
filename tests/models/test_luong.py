"""The recurrent models against a slow reference, in float64, outputs and gradients, and what they refuse."""

import pytest
import torch
from helpers import assert_close, assert_gradients_close, gradients, is_mask_network
from huggingface_hub.errors import StrictDataclassError
from luong_helpers import TINY, tiny_luong
from reference_luong import SlowLuong
from transformers import AutoModelForSeq2SeqLM
from transformers.modeling_outputs import BaseModelOutput

from hf_attncal import LuongConfig, LuongForConditionalGeneration, LuongModel
from hf_attncal.models.luong_layers import has_lstm_kernel

SETTINGS = {
    "dot": {"score": "dot"},
    "general": {},
    "concat": {"score": "concat"},
    "location": {"score": "location"},
    "local-m": {"attention_window": "local-m"},
    "local-p": {"attention_window": "local-p"},
    "local-p, concat": {"attention_window": "local-p", "score": "concat"},
    "local-m, location": {"attention_window": "local-m", "score": "location"},
    "no attention": {"attention_window": None, "input_feeding": False},
    "unfed": {"input_feeding": False},
    "unfed, local-p": {"input_feeding": False, "attention_window": "local-p"},
    "unfed, local-m, gru": {"input_feeding": False, "attention_window": "local-m", "cell": "gru"},
    "gru": {"cell": "gru"},
    "both directions": {"bidirectional": True},
    "both directions, gru, gate": {"bidirectional": True, "cell": "gru", "selective_gate": True},
    "projected, gate": {"bidirectional": True, "directions": "project", "selective_gate": True},
    "gate": {"selective_gate": True},
    "more encoder": {"encoder_layers": 3, "decoder_layers": 1},
    "more decoder": {"encoder_layers": 1, "decoder_layers": 3, "share_embeddings": False},
    "tied": {"embedding_size": 4, "tie_word_embeddings": True},
    "tied to its own": {"embedding_size": 4, "tie_word_embeddings": True, "share_embeddings": False},
    "leaky": {"leaky": True, "null_bias": 0.3},
    "output gate, local-m": {"output_gate": True, "attention_window": "local-m"},
    "leaky, unfed, location": {"leaky": True, "input_feeding": False, "score": "location"},
    "fixed": {"calibration": "fixed"},
    "annealed, unfed": {"calibration": "annealed", "annealing_steps": 10, "input_feeding": False},
    "gated": {"calibration": "gated"},
    "gated, unfed": {"calibration": "gated", "input_feeding": False},
    "gated, leaky, head": {"calibration": "gated", "leaky": True, "mask_projection": "head", "score": "concat"},
    "gated, trained inputs": {"calibration": "gated", "mask_inputs": "trained"},
    "gated, output gate": {"calibration": "gated", "output_gate": True},
}


# One of them has one token, one a target longer than its source and the window.
PAIRS = [([4, 7, 3, 9, 2], [6, 10, 4, 2]), ([2], [9, 2]), ([5, 8, 2], [9, 4, 3, 6, 8, 2])]


def batch_of(pairs, left: bool = False) -> dict[str, torch.Tensor]:
    """Pairs padded to the longest, sources before or behind; what is padding holds a token that is not 0."""
    longest, most = (max(len(pair[side]) for pair in pairs) for side in (0, 1))
    ids, mask, labels = [], [], []
    for source, target in pairs:
        padding, real = [8] * (longest - len(source)), [1] * len(source)
        ids.append(padding + source if left else source + padding)
        mask.append([0] * len(padding) + real if left else real + [0] * len(padding))
        labels.append(target + [-100] * (most - len(target)))
    return {
        name: torch.tensor(rows)
        for name, rows in zip(("input_ids", "attention_mask", "labels"), (ids, mask, labels), strict=True)
    }


def slow_twin(model: LuongForConditionalGeneration) -> SlowLuong:
    parameters = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    return SlowLuong(parameters, model.config, model.annealing_step)


def slow_gradients(slow: SlowLuong, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    found = torch.autograd.grad(loss, list(slow.parameters.values()), allow_unused=True, retain_graph=True)
    return {name: g for name, g in zip(slow.parameters, found, strict=True) if g is not None}


@pytest.mark.half("left", "setting")
@pytest.mark.parametrize("left", [False, True], ids=["padding behind", "padding in front"])
@pytest.mark.parametrize("setting", SETTINGS)
def test_outputs_of_a_padded_batch_are_those_of_single_sentences(setting: str, left: bool):
    model = tiny_luong(**SETTINGS[setting]).eval()
    slow, batch = slow_twin(model), batch_of(PAIRS, left)
    outputs = model(**batch, output_attentions=True)
    for n, (source, target) in enumerate(PAIRS):
        found = slow.decode(source, [2, *target[:-1]])
        assert_close(outputs.logits[n, : len(target)], found["logits"].detach(), 1e-10)
        if model.config.attention_window is None:
            assert outputs.cross_attentions is None
            continue
        (weights,) = outputs.cross_attentions
        assert weights.shape == (len(PAIRS), 1, 6, 5)
        real = batch["attention_mask"][n].bool()
        assert_close(weights[n, 0, : len(target)][:, real].detach(), found["weights"].detach(), 1e-10)
        assert (weights[n, 0][:, ~real] == 0).all()


@pytest.mark.parametrize("real", [[1, 1, 1, 0, 0], [0, 0, 1, 1, 1], [0, 1, 0, 1, 1]], ids=str)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_padding_changes_no_state_and_no_gradient(dtype: torch.dtype, cell: str, real: list[int]):
    """Whatever it holds; in float32 with the library's fused kernel for a CPU, in float64 without."""
    encoder = tiny_luong(cell=cell, bidirectional=True, directions="project").get_encoder().to(dtype)
    inputs = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(1), dtype=dtype)
    mask = torch.tensor([[1, 1, 1, 1, 1], real])
    kept = mask[1].bool()
    inputs[1, ~kept] *= 100

    def gradients_of(*outputs) -> dict[str, torch.Tensor]:
        encoder.zero_grad()
        sum(
            (part**2).sum() for output in outputs for part in (output.last_hidden_state, output.final_states)
        ).backward()
        return gradients(encoder)

    both = encoder(inputs_embeds=inputs, attention_mask=mask)
    alone = [encoder(inputs_embeds=inputs[:1]), encoder(inputs_embeds=inputs[1:, kept])]
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    assert (both.last_hidden_state[1, ~kept] == 0).all()
    assert_close(both.last_hidden_state[1, kept], alone[1].last_hidden_state[0], tolerance)
    assert_close(both.final_states, torch.cat([output.final_states for output in alone]), tolerance)
    assert_gradients_close(gradients_of(both), gradients_of(*alone), tolerance)


@pytest.mark.half("setting")
@pytest.mark.parametrize("setting", SETTINGS)
def test_gradients(setting: str):
    """Compared: both objectives, if there are two, each for its own parameters; and values of losses and penalty."""
    model = tiny_luong(label_smoothing=0.1, mask_penalty=0.3, **SETTINGS[setting]).train()
    slow = slow_twin(model)
    outputs = model(**batch_of(PAIRS))
    outputs.loss.backward()
    loss, _ = slow.negative_log_likelihood(PAIRS)
    assert_close(outputs.loss.detach(), loss.detach(), 1e-10)
    expected = slow_gradients(slow, loss)
    if model.config.calibration is not None:
        perturbed, penalty = slow.negative_log_likelihood(PAIRS, perturb=True)
        mask_loss = model.config.mask_penalty * penalty - perturbed
        assert_close(outputs.mask_loss, mask_loss.detach(), 1e-10)
        assert_close(outputs.mask_penalty, penalty.detach(), 1e-10)
        own = {name: g for name, g in slow_gradients(slow, mask_loss).items() if is_mask_network(name)}
        assert len(own) == 2
        assert_gradients_close({name: g for name, g in gradients(model).items() if is_mask_network(name)}, own, 1e-10)
        expected = {name: g for name, g in expected.items() if not is_mask_network(name)} | own
    assert_gradients_close(gradients(model), expected, 1e-10)


@pytest.mark.parametrize("switches", [{"calibration": "gated", "leaky": True}, {"calibration": "fixed"}], ids=str)
def test_means_and_details_of_steps_are_those_of_the_whole(switches: dict):
    """With input feeding, they are collected step by step."""
    fed = tiny_luong(**switches)
    outputs = fed.train()(**batch_of(PAIRS), output_attention_details=True)
    (masks,), (plain,) = outputs.calibration_masks, outputs.uncalibrated_cross_attentions
    assert masks.shape == plain.shape == (3, 1, 6, 5)
    batch = batch_of(PAIRS)
    cells = (batch["labels"] != -100)[:, None, :, None] & batch["attention_mask"].bool()[:, None, None]
    assert_close(outputs.mask_mean, masks.detach()[cells].mean())
    assert (outputs.gate_mean is not None) == (switches["calibration"] == "gated")
    if "leaky" in switches:
        (nulls,) = outputs.null_attentions
        assert_close((nulls + plain.sum(dim=-1)).detach(), torch.ones(3, 1, 6, dtype=torch.float64))


def test_gumbel_samples_in_training_and_chooses_at_inference():
    model = tiny_luong(gumbel=True)
    batch = batch_of(PAIRS)
    samples = [model.train()(**batch, output_attentions=True).cross_attentions[0] for _ in range(2)]
    assert not torch.equal(*samples)
    (weights,) = model.eval()(**batch, output_attentions=True).cross_attentions
    assert ((weights == 0) | (weights == 1)).all()
    slow = slow_twin(model)
    for n, (source, target) in enumerate(PAIRS):
        found = slow.decode(source, [2, *target[:-1]])
        assert_close(weights[n, 0, : len(target), : len(source)].detach(), found["weights"].detach())


@pytest.mark.processor
@pytest.mark.half("dtype", "setting")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("setting", SETTINGS)
def test_half_precision_is_finite_with_padding_and_empty_sources(setting: str, dtype: torch.dtype):
    """Masks do not overflow, empty windows do not divide by 0; one row is only padding, one has 1 token."""
    model = tiny_luong(**SETTINGS[setting])
    batch = batch_of([*PAIRS, ([4], [2])], left=True)
    batch["attention_mask"][1] = 0
    double = model.train()(**batch)
    outputs = model.to(dtype)(**batch, output_attentions=True)
    outputs.loss.backward()
    assert outputs.logits.isfinite().all()
    assert outputs.loss.item() == pytest.approx(double.loss.item(), rel=0.05)
    assert all(g.isfinite().all() for g in gradients(model).values())
    for weights in outputs.cross_attentions or ():
        for row, real in zip(weights[:, 0], batch["attention_mask"].bool(), strict=True):
            assert not real.any() or (row[:, ~real] == 0).all()


def test_dropout_is_drawn_at_each_step_and_absent_in_evaluation():
    for fed in (True, False):
        model = tiny_luong(dropout=0.5, input_feeding=fed)
        losses = {model.train()(**batch_of(PAIRS)).loss.item() for _ in range(3)}
        assert len(losses) == 3
        expected = tiny_luong(input_feeding=fed).eval()(**batch_of(PAIRS)).loss
        assert_close(model.eval()(**batch_of(PAIRS)).loss.detach(), expected.detach())


@pytest.mark.processor
@pytest.mark.parametrize("setting", ["general", "unfed", "gru"])
def test_an_lstm_that_autocast_cannot_have_runs_in_float32(setting: str, monkeypatch):
    """oneDNN has a bfloat16 LSTM only for AVX-512. The stub refuses it on any processor, in training as there."""
    library = torch.lstm

    def refusing(inputs: torch.Tensor, *others):
        if torch.is_autocast_enabled("cpu"):
            raise RuntimeError("could not create a primitive descriptor")
        return library(inputs, *others)

    monkeypatch.setattr(torch, "lstm", refusing)
    monkeypatch.setattr("torch.nn.modules.rnn._VF.lstm", refusing)
    has_lstm_kernel.cache_clear()
    expected = tiny_luong(**SETTINGS[setting]).float().train()
    expected(**batch_of(PAIRS)).loss.backward()
    model = tiny_luong(**SETTINGS[setting]).float().train()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(**batch_of(PAIRS))
        outputs.loss.backward()
    has_lstm_kernel.cache_clear()
    assert outputs.logits.dtype == torch.bfloat16
    for name, gradient in gradients(model).items():
        assert torch.allclose(gradient, gradients(expected)[name], rtol=0.1, atol=0.02), name


def test_initial_weights():
    """Matrices in the range of Luong et al., biases 0, the forget gates' 1."""
    model = LuongForConditionalGeneration(LuongConfig(**TINY, bidirectional=True, leaky=True, null_key_std=0.0))
    for name, parameter in model.named_parameters():
        if ".null." in name or "bias_hh" in name or name == "lm_head.bias":
            assert (parameter == 0).all(), name
        elif "bias_ih" in name:
            assert parameter.tolist() == [0] * 4 + [1] * 4 + [0] * 8, name
        else:
            assert 0.05 < parameter.abs().max() <= 0.1, name


@pytest.mark.parametrize(
    "settings", [{}, {"share_embeddings": False}, {"embedding_size": 4, "tie_word_embeddings": True}], ids=str
)
def test_saving_and_resizing(settings: dict, tmp_path):
    model = tiny_luong(**settings).float().eval()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(loaded) is LuongForConditionalGeneration
    tables = loaded.get_encoder().embed_tokens, loaded.get_decoder().embed_tokens
    assert (tables[0].weight is tables[1].weight) == settings.get("share_embeddings", True)
    assert (loaded.lm_head.weight is tables[0].weight) == bool(settings.get("tie_word_embeddings"))
    batch = batch_of(PAIRS)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    bare = LuongModel.from_pretrained(tmp_path).eval()
    states = bare(
        **{name: batch[name] for name in ("input_ids", "attention_mask")}, decoder_input_ids=batch["input_ids"]
    )
    assert states.last_hidden_state.shape == (3, 5, 4)
    before = loaded(**batch).logits
    loaded.resize_token_embeddings(13)
    assert loaded.get_decoder().embed_tokens.weight.shape[0] == 13
    assert_close(loaded(**batch).logits[..., :11].detach(), before.detach(), 1e-6)  # products of other sizes
    loaded(input_ids=torch.tensor([[12]]), decoder_input_ids=torch.tensor([[12]]))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": "rnn"}, "`cell` must be one of .*'lstm', 'gru'.*got 'rnn'"),
        ({"score": "additive"}, "`score` must be one of .*got 'additive'"),
        ({"directions": "concat"}, "`directions` must be one of .*got 'concat'"),
        ({"attention_window": "local"}, "`attention_window` must be `None` or one of .*got 'local'"),
        ({"attention_window": None}, "`input_feeding` needs an `attention_window`"),
        ({"attention_window": None, "input_feeding": False, "selective_gate": True}, "`selective_gate` needs an"),
        ({"attention_window": "local-p", "calibration": "gated"}, '`calibration` needs `attention_window="global"`'),
        ({"attention_window": "local-m", "leaky": True}, '`leaky` needs `attention_window="global"`'),
        ({"tie_word_embeddings": True}, "needs `embedding_size` equal to `d_model`, got 3 and 4"),
        ({"selective_gates": True}, "`selective_gates` is no setting. Write `selective_gate`"),
        ({"d_model": "4"}, "d_model"),
    ],
)
def test_configurations_that_are_refused(settings: dict, message: str):
    with pytest.raises((ValueError, StrictDataclassError), match=message):
        LuongConfig(**TINY | settings)


def test_location_has_a_longest_source():
    model = tiny_luong(score="location").eval()
    long = torch.full((2, 7), 5)
    with pytest.raises(ValueError, match=r"`max_source_length`.*6.*got.*7"):
        model(input_ids=long, labels=torch.tensor([[4, 2], [5, 2]]))
    mask = torch.ones_like(long)
    mask[:, -1] = 0  # padding does not count
    model(input_ids=long, attention_mask=mask, labels=torch.tensor([[4, 2], [5, 2]]))


def test_inputs_that_are_refused():
    model = tiny_luong().eval()
    batch = batch_of(PAIRS)
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    tokens = torch.tensor([[2, 4], [2, 5], [2, 6]])
    with pytest.raises(ValueError, match=r"`input_ids`.*at least one"):
        model(input_ids=torch.zeros(1, 0, dtype=torch.long), decoder_input_ids=tokens[:1])
    with pytest.raises(ValueError, match=r"`input_ids`.*`inputs_embeds`.*got neither"):
        model(decoder_input_ids=tokens)
    with pytest.raises(ValueError, match=r"`decoder_input_ids`.*`decoder_inputs_embeds`.*got neither"):
        model(**source)
    with pytest.raises(ValueError, match="padding in front"):
        model(**source, decoder_input_ids=tokens, decoder_attention_mask=torch.tensor([[0, 1]] * 3))
    with pytest.raises(ValueError, match="got 2 rows for 3 sources"):
        model(**source, decoder_input_ids=tokens[:2])
    encoded = model.get_encoder()(**source)
    with pytest.raises(ValueError, match=r"`encoder_outputs`.*`last_hidden_state`.*`final_states`"):
        model(encoder_outputs=BaseModelOutput(encoded.last_hidden_state), decoder_input_ids=tokens)
    expected = model(**source, decoder_input_ids=tokens).logits
    mask = {"attention_mask": batch["attention_mask"]}
    for given in (encoded, encoded.to_tuple()):
        assert torch.equal(model(encoder_outputs=given, decoder_input_ids=tokens, **mask).logits, expected)
