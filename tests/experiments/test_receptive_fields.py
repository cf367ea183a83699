"""Receptive fields made of attention weights: those that a Discrete Transformer tells, and soft ones."""

import pytest
import torch
from receptive_fields import receptive_field_report, receptive_fields
from transformers import MarianConfig, MarianMTModel

from hf_attncal import (
    DiscreteTransformerConfig,
    DiscreteTransformerForCausalLM,
    DiscreteTransformerForConditionalGeneration,
)

TINY = {
    "vocab_size": 40,
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 32,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "init_std": 0.5,
}


def batch(length: int = 9, steps: int = 7) -> dict[str, torch.Tensor]:
    source = torch.randint(4, 40, (3, length))
    mask = torch.ones_like(source)
    source[1, 6:], mask[1, 6:] = 1, 0
    labels = torch.randint(4, 40, (3, steps))
    labels[2, 4:] = -100
    return {"input_ids": source, "attention_mask": mask, "labels": labels}


@pytest.fixture(params=[(1, False), (2, False), (1, True), (2, True)], ids=str)
def model(request):
    streams, leaky = request.param
    torch.manual_seed(streams)
    config = DiscreteTransformerConfig(streams=streams, leaky=leaky, **TINY)
    return DiscreteTransformerForConditionalGeneration(config).eval()


def reached(attentions, fields, read):
    """Sets by following every choice of every head, one by one."""
    return [
        [fields[b][t].union(*(read[b][int(w.argmax())] for w in row if w.any())) for t, row in enumerate(rows)]
        for b, rows in enumerate(attentions.transpose(1, 2))
    ]


def test_sets_are_those_that_follow_from_every_choice(model):
    inputs = batch()
    outputs = model(**inputs, output_attentions=True, output_receptive_fields=True)
    found = receptive_fields(outputs.decoder_attentions, outputs.cross_attentions, outputs.encoder_attentions)
    assert found.source.dtype == found.target.dtype == torch.bool
    assert torch.equal(found.source, outputs.source_receptive_fields)
    assert torch.equal(found.target, outputs.target_receptive_fields)

    encoder = [[{i} for i in range(9)] for _ in range(3)]
    for layer in outputs.encoder_attentions:
        encoder = reached(layer, encoder, encoder)
    target, source = [[{i} for i in range(7)] for _ in range(3)], [[set() for _ in range(7)] for _ in range(3)]
    for own, cross in zip(outputs.decoder_attentions, outputs.cross_attentions, strict=True):
        source, target = reached(own, source, source), reached(own, target, target)
        source = reached(cross, source, encoder)
    for b in range(3):
        for t in range(7):
            assert set(found.target[b, t].nonzero().flatten().tolist()) == target[b][t]
            assert set(found.source[b, t].nonzero().flatten().tolist()) == source[b][t]
    assert 1 < found.source.sum(-1).float().mean() < 9  # neither nothing nor everything
    assert torch.equal(found.sizes, found.source.sum(-1) + found.target.sum(-1))


def test_chosen_positions_are_as_good_as_weights(model):
    outputs = model(**batch(), output_attentions=True)
    layers = outputs.decoder_attentions, outputs.cross_attentions, outputs.encoder_attentions
    by_weights = receptive_fields(*layers)
    by_choice = receptive_fields(
        *([weights.argmax(-1).masked_fill(~weights.any(-1), -1) for weights in kind] for kind in layers)
    )
    assert torch.equal(by_weights.source, by_choice.source)
    assert torch.equal(by_weights.target, by_choice.target)


def test_a_soft_model_has_sums_of_weights():
    torch.manual_seed(0)
    stock = MarianMTModel._from_config(MarianConfig(**TINY), attn_implementation="eager").eval()
    ours = DiscreteTransformerForConditionalGeneration(DiscreteTransformerConfig(hard_attention=False, **TINY)).eval()
    ours.load_state_dict(stock.state_dict())
    torch.manual_seed(1)
    inputs = batch()
    outputs = stock(**inputs, output_attentions=True)
    found = receptive_fields(outputs.decoder_attentions, outputs.cross_attentions, outputs.encoder_attentions)
    told = ours(**inputs, output_receptive_fields=True)
    torch.testing.assert_close(found.source, told.source_receptive_fields)
    torch.testing.assert_close(found.target, told.target_receptive_fields)
    assert found.source.is_floating_point()
    assert (found.source > 0).all(dim=-1).any()  # a soft prediction has read all there is
    assert found.source.max() <= 1
    assert (found.target.triu(1) == 0).all()


def test_what_is_missing_is_named():
    weights = torch.eye(3).expand(1, 1, 3, 3)
    with pytest.raises(ValueError, match=r"`decoder_attentions`.*got none"):
        receptive_fields(())
    with pytest.raises(ValueError, match=r"`cross_attentions`.*`encoder_attentions`"):
        receptive_fields([weights], [weights])
    with pytest.raises(ValueError, match=r"`decoder_attentions`.*got 2 and 1"):
        receptive_fields([weights], [weights, weights], [weights])


def test_report_counts_real_predictions_alone(model):
    inputs = batch()
    model.train()
    report = receptive_field_report(model, [inputs, inputs])
    assert model.training
    model.eval()
    outputs = model(**inputs, output_receptive_fields=True)
    real = inputs["labels"] != -100
    source = outputs.source_receptive_fields.sum(-1)[real].double().mean()
    assert report["source_tokens"] == pytest.approx(source.item())
    assert report["target_tokens"] == pytest.approx(
        outputs.target_receptive_fields.sum(-1)[real].double().mean().item()
    )
    assert report["source_length"] == pytest.approx((9 * 7 + 6 * 7 + 9 * 4) / 18)
    assert report["target_length"] == pytest.approx((28 + 28 + 10) / 18)
    assert report["source_share"] == pytest.approx(report["source_tokens"] / report["source_length"])
    nothing = {**inputs, "labels": torch.full_like(inputs["labels"], -100)}
    with pytest.raises(ValueError, match=r"prediction.*none"):
        receptive_field_report(model, [nothing])


def test_report_of_a_language_model():
    torch.manual_seed(0)
    model = DiscreteTransformerForCausalLM(DiscreteTransformerConfig(**TINY)).eval()
    ids = torch.randint(4, 40, (2, 6))
    report = receptive_field_report(model, [{"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}])
    fields = model(ids, output_receptive_fields=True).target_receptive_fields[:, :-1]  # the last predicts nothing
    assert report["target_tokens"] == pytest.approx(fields.sum(-1).double().mean().item())
    assert report["target_length"] == pytest.approx(3.0)
    assert "source_tokens" not in report
