"""The Discrete Transformer saved, loaded, resized and scheduled; and what it refuses."""

import pytest
import torch
from discrete_helpers import KINDS, MODELS, batch_for, tiny_discrete
from helpers import TINY, assert_close, assert_gradients_close, assert_identical, enable_checkpointing, gradients
from runs import logged, make_trainer, toy_dataset
from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForCausalLM
from hf_attncal.models import calibration

AUTO = {"seq2seq": AutoModelForSeq2SeqLM, "causal": AutoModelForCausalLM}
SCHEDULE = {"gumbel_straight_through": True, "gumbel_straight_through_steps": 10, "receptive_field_penalty": 0.1}
SCHEDULE |= {"penalty_warmup_steps": 4}
TABLES = [{}, {"tie_word_embeddings": False}, {"share_encoder_decoder_embeddings": False}]


@pytest.mark.parametrize("tables", TABLES, ids=str)
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_saved_and_loaded(kind, streams, tables, tmp_path):
    model = tiny_discrete(kind, torch.float32, streams=streams, **SCHEDULE, **tables).eval()
    model.set_annealing_step(7)
    model.save_pretrained(tmp_path)
    loaded = AUTO[kind].from_pretrained(tmp_path)
    assert type(loaded) is MODELS[kind]
    assert loaded.annealing_step == 7
    assert loaded.state_dict().keys() == model.state_dict().keys()
    assert_identical(loaded(**batch_for(kind)).logits, model(**batch_for(kind)).logits)


@pytest.mark.parametrize("tables", TABLES, ids=str)
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_both_vocabulary_tables_are_resized(kind, streams, tables):
    """More tokens change no logit of the old ones, and the new ones can be read; fewer are cut."""
    model = tiny_discrete(kind, streams=streams, **tables).eval()
    before = model(**batch_for(kind)).logits
    for size in (TINY["vocab_size"] + 4, TINY["vocab_size"]):
        model.resize_token_embeddings(size)
        if kind == "seq2seq" and not model.config.share_encoder_decoder_embeddings:
            model.resize_decoder_token_embeddings(size)
        modules = model.named_modules(remove_duplicate=False)
        rows = {name: module.num_embeddings for name, module in modules if name.endswith("embed_tokens")}
        assert set(rows.values()) == {size}
        assert len(rows) == streams * (2 if kind == "seq2seq" else 1)
        batch = batch_for(kind)
        batch["labels"] = batch["labels"].clone()
        batch["input_ids"] = batch["input_ids"].clone()
        logits = model(**batch).logits
        assert logits.shape[-1] == size
        if tables != TABLES[1] or kind == "causal":  # stock Marian's untied tables become one when they are resized
            assert_close(logits[..., : TINY["vocab_size"]], before)
        batch["input_ids"][0, 0] = size - 1
        batch["labels"][0, 0] = size - 1
        assert torch.isfinite(model(**batch).loss)


def test_the_other_kind_of_checkpoint_is_refused(tmp_path):
    for kind, other in (("seq2seq", "causal"), ("causal", "seq2seq")):
        tiny_discrete(kind, torch.float32).save_pretrained(tmp_path / kind)
        message = "lacks weights of the model" if kind == "seq2seq" else "`is_encoder_decoder` must be True"
        with pytest.raises(ValueError, match=message):
            MODELS[other].from_pretrained(tmp_path / kind)


def test_a_causal_model_has_the_sizes_of_the_decoder():
    """transformers makes caches by the encoder's fields."""
    config = DiscreteTransformerConfig(**TINY | {"encoder_layers": 1, "decoder_layers": 3})
    model = DiscreteTransformerForCausalLM(config)
    assert model.config.num_hidden_layers == 3
    assert config.encoder_layers == 1
    assert model.generate(torch.tensor([[5]]), max_new_tokens=3).shape[1] > 1


# ---- training ----


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_gradient_checkpointing_changes_no_gradient(kind, streams, reentrant):
    """With dropout and noise: what is computed again draws the same numbers."""
    switches = {"dropout": 0.3, "attention_dropout": 0.2, "receptive_field_penalty": 0.3}
    model = tiny_discrete(kind, streams=streams, **switches).train()
    found = []
    for checkpointing in (False, True):
        if checkpointing:
            enable_checkpointing(model, {"use_reentrant": reentrant})
        model.zero_grad()
        torch.manual_seed(5)
        model(**batch_for(kind), use_cache=False).loss.backward()
        found.append(gradients(model))
    assert_gradients_close(found[1], found[0], 1e-12)


@pytest.mark.parametrize("kind", MODELS)
def test_the_schedule_moves_the_temperature_and_the_penalty(kind, monkeypatch):
    said = []
    monkeypatch.setattr(calibration.logger, "warning_once", said.append)
    model = tiny_discrete(kind, **SCHEDULE).train()
    losses = set()
    for step in (None, 0, 2, 4, 8, 10, 20):
        if step is not None:
            model.set_annealing_step(step)
        torch.manual_seed(5)
        outputs = model(**batch_for(kind))
        cross_entropy = outputs["nmt_loss" if kind == "seq2seq" else "lm_loss"]
        weight = 0.1 * min((step or 0) / 4, 1)
        expected = cross_entropy + weight * outputs.receptive_field_size
        assert outputs.loss.item() == pytest.approx(expected.item(), rel=1e-6)
        losses.add(round(cross_entropy.item(), 9))
    assert len(losses) == 5  # nothing counted is step 0, and after 10 all choices are one-hot
    assert len(said) == 1
    assert "nothing counts them" in said[0]
    assert tiny_discrete(kind).annealing_step is None


def test_the_trainer_drives_the_schedule_and_resumes_it(tmp_path):
    options = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "per_device_train_batch_size": 4}
    model = tiny_discrete("seq2seq", torch.float32, **SCHEDULE)
    whole = make_trainer(tmp_path, model, toy_dataset(16), **options)
    whole.train()
    assert model.annealing_step == 4
    assert len(logged(whole, "receptive_field_size")) == 4
    again = tiny_discrete("seq2seq", torch.float32, **SCHEDULE)
    resumed = make_trainer(tmp_path / "resumed", again, toy_dataset(16), **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert again.annealing_step == 4
    for name, tensor in model.state_dict().items():
        assert_identical(again.state_dict()[name], tensor, name)


# ---- bad input ----


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"streams": 3}, "`streams` must be 1 or 2, got 3"),
        ({"streams": 0}, "`streams` must be 1 or 2, got 0"),
        ({"relative_positions": -1}, "`relative_positions` must be >= 0 and at most 1e9, got -1"),
        ({"relative_positions": 99}, r"must be at most `max_position_embeddings` \(24\)"),
        ({"gumbel_straight_through_steps": 5}, "`gumbel_straight_through_steps` needs `gumbel_straight_through=True`"),
        ({"penalty_warmup_steps": 5}, "needs a `receptive_field_penalty` above 0"),
        ({"hard_attention": False, "gumbel_straight_through": True}, "needs `hard_attention=True`"),
    ],
    ids=str,
)
def test_settings_out_of_range(values, message):
    with pytest.raises(Exception, match=message):
        DiscreteTransformerConfig(**TINY | values)
    config = DiscreteTransformerConfig(**TINY)
    for name, value in values.items():
        object.__setattr__(config, name, value)  # as later changes that no validator sees
    with pytest.raises(Exception, match=message):
        DiscreteTransformerForCausalLM(config)


@pytest.mark.parametrize("streams", [1, 2])
def test_texts_that_are_too_long_or_empty(streams):
    long, short, empty = torch.full((1, 25), 5), torch.tensor([[5]]), torch.zeros(1, 0, dtype=torch.long)
    seq2seq, causal = (tiny_discrete(kind, streams=streams).eval() for kind in MODELS)
    for ids, message in ((long, "must have at most 24 positions .*, got 25"), (empty, "must have at least one token")):
        with pytest.raises(ValueError, match=f"`input_ids` {message}"):
            causal(ids)
        with pytest.raises(ValueError, match=f"`input_ids` {message}"):
            seq2seq(ids, decoder_input_ids=short)
        with pytest.raises(ValueError, match=f"`decoder_input_ids` {message}"):
            seq2seq(short, decoder_input_ids=ids)


def test_encoder_outputs_of_another_model():
    one, two = (tiny_discrete("seq2seq", streams=streams).eval() for streams in (1, 2))
    wide = tiny_discrete("seq2seq", streams=2, d_model=16).eval()
    ids = torch.tensor([[4, 7, 2]])
    for model, encoder in ((one, two), (two, one), (two, wide)):
        with pytest.raises(ValueError, match=r"`streams`: [12]\), got \[\(1, 3"):
            model(encoder_outputs=encoder.get_encoder()(ids), decoder_input_ids=ids)
    states = two.get_encoder()(ids)
    given = states.last_hidden_state, states.syntactic_last_hidden_state
    assert_identical(two(encoder_outputs=given, decoder_input_ids=ids).logits, two(ids, decoder_input_ids=ids).logits)


def test_embeddings_of_another_width_than_the_streams_have():
    ids, embeddings = torch.tensor([[4, 7, 2]]), torch.zeros(1, 3, 8, dtype=torch.float64)
    one, two = (tiny_discrete("causal", streams=streams) for streams in (1, 2))
    with pytest.raises(ValueError, match=r"`inputs_embeds`.* 16, .*got 8"):
        two(inputs_embeds=embeddings)
    with pytest.raises(ValueError, match=r"`input_ids`.*`inputs_embeds`"):
        one(ids, inputs_embeds=embeddings)
