"""The Discrete Transformer against stock Marian and against loops: values, losses and all gradients."""

import copy

import pytest
import torch
from discrete_helpers import KINDS, MODELS, SOURCES, TEXTS, batch_for, tiny_discrete
from helpers import (
    TINY,
    assert_close,
    assert_gradients_close,
    assert_identical,
    gradients,
    half_of,
    tiny_batch,
    tiny_stock_model,
)
from reference_discrete import SlowDiscrete
from transformers import MarianForCausalLM, MarianModel

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForConditionalGeneration, DiscreteTransformerModel

SOFT = {"hard_attention": False}
START = TINY["decoder_start_token_id"]


# ---- soft and one stream: Marian ----


class TestSoftWithOneStreamIsMarian:
    DROPOUT = {"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3}

    @pytest.fixture
    def twins(self, tmp_path):
        """A stock checkpoint, loaded by either class."""
        stock = tiny_stock_model("marian", torch.float32, **self.DROPOUT)
        stock.save_pretrained(tmp_path)
        return stock, DiscreteTransformerForConditionalGeneration.from_pretrained(tmp_path, **SOFT)

    def test_weights_and_configuration(self, twins):
        stock, ours = twins
        assert ours.state_dict().keys() == stock.state_dict().keys()
        for name, tensor in stock.state_dict().items():
            assert_identical(ours.state_dict()[name], tensor, name)
        assert type(ours.config) is DiscreteTransformerConfig
        assert ours.config.model_type == "discrete_transformer"
        assert not ours.config.hard_attention

    @pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
    @pytest.mark.parametrize("implementation", ["eager", "sdpa"])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
    def test_logits_and_loss(self, twins, training, implementation, dtype, no_draws_for_layerdrop):
        """Equal to the bit; in training with the same dropout. The stock loss has another formula."""
        found = []
        for model in twins:
            model.to(dtype).train(training).set_attn_implementation(implementation)
            torch.manual_seed(4)
            found.append(model(**tiny_batch()))
        assert_identical(found[1].logits, found[0].logits)
        assert_close(found[1].loss.double(), found[0].loss.double(), 0.05 if dtype == torch.bfloat16 else 1e-6)

    def test_gradients(self, twins):
        for model in twins:
            model.double().eval()(**tiny_batch()).loss.backward()
        assert_gradients_close(gradients(twins[1]), {n: g for n, g in gradients(twins[0]).items() if "posit" not in n})

    @pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True}], ids=str)
    def test_generation(self, twins, options):
        inputs = {name: tensor for name, tensor in tiny_batch().items() if name != "labels"}
        found = []
        for model in twins:
            torch.manual_seed(1)
            more = {"output_logits": True, "return_dict_in_generate": True, "max_new_tokens": 8}
            found.append(model.eval().generate(**inputs, **options, **more))
        assert found[0].sequences.tolist() == found[1].sequences.tolist()
        for ours, theirs in zip(found[1].logits, found[0].logits, strict=True):
            assert torch.equal(ours, theirs)

    def test_the_kernels_give_out_what_stock_gives_out(self, twins):
        for implementation in ("eager", "sdpa"):
            outputs = []
            for model in twins:
                model.eval().set_attn_implementation(implementation)
                outputs.append(model(**tiny_batch(), output_attentions=True, output_hidden_states=True))
            for name in ("encoder_attentions", "decoder_attentions", "cross_attentions", "decoder_hidden_states"):
                for ours, theirs in zip(outputs[1][name] or (), outputs[0][name] or (), strict=True):
                    assert (ours is None) == (theirs is None)
                    if theirs is not None:
                        assert_identical(ours, theirs, name)

    def test_bare_model(self, twins, tmp_path):
        """A bare checkpoint loads in both classes: there is no head in it that could be damaged."""
        stock = twins[0].eval()
        stock.model.save_pretrained(tmp_path / "bare")
        ours = DiscreteTransformerModel.from_pretrained(tmp_path / "bare", **SOFT)
        batch = {name: tensor for name, tensor in tiny_batch().items() if name != "labels"}
        inputs = batch | {"decoder_input_ids": batch["input_ids"]}
        assert_identical(ours(**inputs).last_hidden_state, stock.model(**inputs).last_hidden_state)
        headed = DiscreteTransformerForConditionalGeneration.from_pretrained(tmp_path / "bare", **SOFT)
        assert_identical(headed(**inputs).logits, stock(**inputs).logits)
        assert type(stock.model) is MarianModel

    def test_causal_model(self):
        """The stock causal model's decoder sits one name deeper, and its labels are shifted by the caller."""
        stock = MarianForCausalLM(copy.deepcopy(tiny_stock_model("marian").config)).double().eval()
        ours = tiny_discrete("causal", **SOFT).eval()
        weights = {name.replace("model.decoder.", "model."): tensor for name, tensor in stock.state_dict().items()}
        ours.load_state_dict({name: tensor for name, tensor in weights.items() if "encoder_attn" not in name})
        batch = batch_for("causal")
        shifted = torch.nn.functional.pad(batch["labels"][:, 1:], (0, 1), value=-100)
        expected = stock(**batch | {"labels": shifted})
        found = ours(**batch)
        assert_identical(found.logits, expected.logits)
        assert_close(found.loss, expected.loss)


# ---- everything else: loops ----

SETTINGS = {
    "soft": SOFT | {"receptive_field_penalty": 0.3},
    "hard": {"receptive_field_penalty": 0.3},
    "cold, half noise": {"gumbel_temperature": 0.5, "gumbel_noise": 0.5, "label_smoothing": 0.1},
    "straight-through": {"gumbel_straight_through": True, "receptive_field_penalty": 0.3},
    "leaky": {"leaky": True, "receptive_field_penalty": 0.3},
    "leaky, with a bias, soft": SOFT | {"leaky": True, "null_bias": -0.5},
    "relative positions": {"relative_positions": 2, "receptive_field_penalty": 0.3},
    "leaky, relative positions, straight-through": {
        "leaky": True,
        "relative_positions": 3,
        "gumbel_straight_through": True,
        "gumbel_noise": 0.0,
    },
    "scaled": {"scale_embedding": True, "tie_word_embeddings": False, "receptive_field_penalty": 0.3},
}


def slow_run(slow: SlowDiscrete, kind: str) -> dict:
    if kind == "causal":
        return slow.run(None, TEXTS, [[*text[1:], -100] for text in TEXTS])
    return slow.run(SOURCES, [[START, *text[:-1]] for text in TEXTS], TEXTS)


def assert_fields_are(found: torch.Tensor, expected: list, tolerance: float = 1e-12) -> None:
    """Assert the fields of the real positions; padding has none."""
    for row, fields in zip(found, expected, strict=True):
        wanted = torch.stack([torch.stack(field) for field in fields])
        assert_close(row[: wanted.shape[0], : wanted.shape[1]].to(wanted.dtype), wanted, tolerance, "fields")


@pytest.mark.third("size", "settings", "training")
@pytest.mark.parametrize(("size", "settings", "training"), half_of(KINDS, SETTINGS, {"eval": False, "train": True}))
def test_the_whole_model_is_the_loops(size, settings, training):
    """Logits, losses, fields and every gradient, of two sentences in a padded batch, with the same noise."""
    kind, streams = size
    model = tiny_discrete(kind, streams=streams, **settings).train(training)
    slow = SlowDiscrete(model)
    torch.manual_seed(5)
    found = model(**batch_for(kind), output_receptive_fields=True)
    found.loss.backward()
    torch.manual_seed(5)
    expected = slow_run(slow, kind)
    for b, logits in enumerate(expected["logits"]):
        assert_close(found.logits[b, : len(logits)], logits, 1e-11, "logits")
    assert_close(found["nmt_loss" if kind == "seq2seq" else "lm_loss"], expected["cross_entropy"].detach(), 1e-11)
    assert_close(found.receptive_field_size.double(), expected["size"].detach(), 1e-6)
    assert_close(found.loss, expected["loss"], 1e-11)
    assert_fields_are(found.target_receptive_fields, expected["target_fields"])
    if kind == "seq2seq":
        assert_fields_are(found.source_receptive_fields, expected["source_fields"])
    wanted = slow.gradients(expected["loss"])
    unreached = {name: torch.zeros_like(gradient) for name, gradient in wanted.items()}
    assert_gradients_close(unreached | gradients(model), wanted, 1e-10)


@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_the_weights_given_out_are_those_of_the_loops(kind, streams):
    for training in (False, True):
        model = tiny_discrete(kind, streams=streams).train(training)
        slow = SlowDiscrete(model)
        torch.manual_seed(5)
        outputs = model(**batch_for(kind), output_attentions=True)
        torch.manual_seed(5)
        slow_run(slow, kind)
        own = "attentions" if kind == "causal" else "decoder_attentions"
        found = {"model.encoder.layers.{}.self_attn": outputs.get("encoder_attentions")}
        found |= {f"model.{'' if kind == 'causal' else 'decoder.'}layers.{{}}.self_attn": outputs[own]}
        found |= {"model.decoder.layers.{}.encoder_attn": outputs.get("cross_attentions")}
        checked = 0
        for name, layers in found.items():
            for i, weights in enumerate(layers or ()):
                for b, heads in enumerate(slow.routing[name.format(i)]):
                    for h, positions in enumerate(heads):
                        for t, row in enumerate(positions):
                            wanted = torch.stack(row).detach()
                            assert_close(weights[b, h, t, : len(row)].detach(), wanted, 1e-11)
                            assert not weights[b, h, t, len(row) :].any()
                            checked += 1
        assert checked > 20


# ---- the penalty ----


@pytest.mark.parametrize("kind", MODELS)
def test_the_penalty_is_of_training(kind):
    """At evaluation `loss` is the cross-entropy, whether fields are asked for or not, so that both compare."""
    model = tiny_discrete(kind, receptive_field_penalty=0.3)
    trained = model.train()(**batch_for(kind))
    name = "nmt_loss" if kind == "seq2seq" else "lm_loss"
    assert trained.target_receptive_fields is not None
    assert_close(trained.loss.detach(), (trained[name] + 0.3 * trained.receptive_field_size).detach())
    assert trained.loss > trained[name]
    model.eval()
    plain, asked = model(**batch_for(kind)), model(**batch_for(kind), output_receptive_fields=True)
    assert plain.get("receptive_field_size") is None
    assert plain.get("target_receptive_fields") is None
    assert asked.receptive_field_size > 1
    assert_identical(asked.loss, plain.loss)
    assert_identical(asked.loss, asked[name])


@pytest.mark.parametrize("kind", MODELS)
def test_penalty_of_a_batch_is_that_of_its_parts(kind):
    """With `num_items_in_batch` the losses and gradients of parts add up to those of the whole."""
    model = tiny_discrete(kind, receptive_field_penalty=0.3, gumbel_noise=0, label_smoothing=0.1).train()
    batch = batch_for(kind)
    count = batch["labels"].ne(-100).sum() - (len(TEXTS) if kind == "causal" else 0)
    whole = model(**batch)
    whole.loss.backward()
    expected = gradients(model)
    model.zero_grad()
    losses = {"loss": 0.0, "receptive_field_size": 0.0}
    for i in range(2):
        part = model(**{name: tensor[i : i + 1] for name, tensor in batch.items()}, num_items_in_batch=count)
        part.loss.backward()
        losses = {name: value + part[name].item() for name, value in losses.items()}
    for name, value in losses.items():
        assert value == pytest.approx(whole[name].item(), rel=1e-9)
    assert_gradients_close(gradients(model), expected, 1e-10)
    number = model(**batch, num_items_in_batch=int(count)).loss
    assert_close(number.detach(), whole.loss.detach())


# ---- how the parts are put together ----


@pytest.mark.parametrize(("kind", "streams"), KINDS)
@pytest.mark.parametrize("hard", [False, True], ids=["soft", "hard"])
def test_no_parameter_without_a_gradient(kind, streams, hard):
    """DDP without `find_unused_parameters` stops at one."""
    for layers in (1, 2):
        sizes = {"encoder_layers": layers, "decoder_layers": layers, "hard_attention": hard}
        model = tiny_discrete(kind, streams=streams, **sizes).train()
        model(**batch_for(kind)).loss.backward()
        unused = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
        assert not unused
        idle = [n for n, p in model.named_parameters() if p.requires_grad and not p.grad.any()]
        assert all("k_proj.bias" in name for name in idle)  # a constant of a row of scores


def test_the_streams_share_only_the_selected_positions():
    """The semantic stream's values do not reach the syntactic stream, and so not the choices, in any layer."""
    model = tiny_discrete("seq2seq", streams=2).eval()
    inputs = batch_for("seq2seq")
    before = model(**inputs, output_attentions=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            syntactic = "syntactic_" in name or "q_proj" in name or "k_proj" in name
            if parameter.requires_grad and not syntactic:
                parameter.add_(torch.randn_like(parameter))
    after = model(**inputs, output_attentions=True)
    for name in ("encoder_attentions", "decoder_attentions", "cross_attentions"):
        for first, second in zip(before[name], after[name], strict=True):
            assert_identical(first, second)
    assert_identical(before.encoder_syntactic_last_hidden_state, after.encoder_syntactic_last_hidden_state)
    assert (before.logits - after.logits).abs().max() > 0.1


@pytest.mark.processor
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_low_precision_trains_and_evaluates(kind, streams, dtype):
    switches = {"receptive_field_penalty": 0.3, "gumbel_temperature": 1e-6}
    model = tiny_discrete(kind, dtype, streams=streams, **switches).train()
    outputs = model(**batch_for(kind), output_receptive_fields=True)
    outputs.loss.backward()
    assert torch.isfinite(outputs.loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    assert outputs.target_receptive_fields.dtype == torch.float32
    with torch.no_grad():
        outputs = model.eval()(**batch_for(kind), output_receptive_fields=True)
    assert outputs.logits.dtype == dtype
    assert outputs.target_receptive_fields.dtype == torch.bool


@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_eager_is_sdpa(kind, streams):
    """Choices form the scores themselves, whatever kernel is set; masks come in two kinds."""
    found = []
    for implementation in ("eager", "sdpa"):
        model = tiny_discrete(kind, streams=streams).eval()
        model.set_attn_implementation(implementation)
        found.append(model(**batch_for(kind), output_receptive_fields=True))
    assert_identical(found[0].logits, found[1].logits)
    assert torch.equal(found[0].target_receptive_fields, found[1].target_receptive_fields)


@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_embeddings_in_place_of_tokens(kind, streams):
    model = tiny_discrete(kind, streams=streams, scale_embedding=kind == "causal").eval()
    batch = batch_for(kind)
    stack = model.model.encoder if kind == "seq2seq" else model.model
    given = {"inputs_embeds": stack.embed_tokens(batch["input_ids"])}
    if streams == 2:
        given["inputs_embeds"] = torch.cat(
            [given["inputs_embeds"], stack.syntactic_embed_tokens(batch["input_ids"])], dim=-1
        )
    without = {name: tensor for name, tensor in batch.items() if name != "input_ids"}
    assert_identical(model(**without, **given).logits, model(**batch).logits)
    if kind == "seq2seq":
        ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
        decoder = model.model.decoder
        given = {"decoder_inputs_embeds": decoder.embed_tokens(ids)}
        if streams == 2:
            given["decoder_inputs_embeds"] = torch.cat(
                [given["decoder_inputs_embeds"], decoder.syntactic_embed_tokens(ids)], dim=-1
            )
        assert_identical(model(**batch, **given).logits, model(**batch).logits)


def test_layers_may_be_dropped():
    """LayerDrop, with fields and two streams; stock draws the same numbers."""
    model = tiny_discrete("seq2seq", streams=2, encoder_layerdrop=0.5, decoder_layerdrop=0.5).train()
    losses = set()
    for seed in range(12):
        torch.manual_seed(seed)
        losses.add(model(**batch_for("seq2seq"), output_receptive_fields=True).loss.item())
    assert len(losses) > 3
    stock = tiny_stock_model("marian", encoder_layerdrop=0.5, decoder_layerdrop=0.5).train()
    ours = tiny_discrete("seq2seq", encoder_layerdrop=0.5, decoder_layerdrop=0.5, **SOFT).train()
    ours.load_state_dict(stock.state_dict())
    for seed in range(4):
        found = []
        for twin in (stock, ours):
            torch.manual_seed(seed)
            found.append(twin(**tiny_batch()).logits)
        assert_identical(found[1], found[0])


def test_logits_to_keep():
    model = tiny_discrete("causal").eval()
    ids = torch.tensor(TEXTS[:1])
    logits = model(ids).logits
    assert_close(model(ids, logits_to_keep=2).logits, logits[:, -2:])
    assert_close(model(ids, logits_to_keep=torch.tensor([1, 3])).logits, logits[:, [1, 3]])
