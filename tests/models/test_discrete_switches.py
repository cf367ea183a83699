"""Additions to the Discrete Transformer's paper: NULL, relative positions, schedules, blocks of queries."""

import pytest
import torch
from discrete_helpers import KINDS, batch_for, tiny_discrete
from helpers import assert_close, assert_identical

from hf_attncal import AnnealingCallback
from hf_attncal.models import discrete_layers
from hf_attncal.models.functional import gumbel_attention, one_hot_argmax

BOTH = {"leaky": True, "relative_positions": 2}


@pytest.mark.parametrize("streams", [1, 2])
def test_padding_on_the_left_changes_nothing(streams):
    model = tiny_discrete("causal", streams=streams, **BOTH).eval()
    batch = batch_for("causal", left=True, labels=False)
    together = model(**batch).logits
    for row, mask in enumerate(batch["attention_mask"].bool()):
        alone = model(batch["input_ids"][row][mask][None]).logits
        assert_close(together[row][mask], alone[0], 1e-12, "logits")


@pytest.mark.parametrize("switches", [{}, BOTH], ids=["plain", "leaky and relative"])
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_some_queries_at_a_time_choose_the_same(kind, streams, switches, monkeypatch):
    model = tiny_discrete(kind, streams=streams, **switches).eval()
    whole = model(**batch_for(kind), output_receptive_fields=True)
    monkeypatch.setattr(discrete_layers, "SCORES_AT_ONCE", 40)
    parts = model(**batch_for(kind), output_receptive_fields=True)
    assert_identical(parts.logits, whole.logits)
    assert torch.equal(parts.target_receptive_fields, whole.target_receptive_fields)


def test_blocks_are_as_large_as_they_may_be(monkeypatch):
    """Shows that the test above compares something: 2 sentences, 4 heads and 6 keys leave no room for two queries."""
    sizes = []
    original = discrete_layers.chosen_positions
    monkeypatch.setattr(discrete_layers, "chosen_positions", lambda s: sizes.append(s.shape[2]) or original(s))
    monkeypatch.setattr(discrete_layers, "SCORES_AT_ONCE", 40)
    tiny_discrete("causal").eval()(**batch_for("causal", labels=False))
    assert set(sizes) == {1}


@pytest.mark.parametrize("kind", ["seq2seq", "causal"])
def test_a_head_that_reads_nothing_has_no_weight(kind):
    model = tiny_discrete(kind, leaky=True, null_bias=1e4).eval()  # always
    outputs = model(**batch_for(kind), output_attentions=True, output_receptive_fields=True)
    weights = outputs["attentions" if kind == "causal" else "cross_attentions"]
    assert not torch.stack(weights).any()
    size = outputs.target_receptive_fields.shape[-1]
    assert torch.equal(outputs.target_receptive_fields[0], torch.eye(size, dtype=torch.bool))
    if kind == "seq2seq":
        assert not outputs.source_receptive_fields.any()


@pytest.mark.parametrize("share", [0.0, 0.25, torch.tensor(0.5), 1.0, True])
def test_a_share_of_one_hot_weights(share):
    """Forward uses a mixture of the soft weights and their argmax, backward only the soft weights."""
    torch.manual_seed(0)
    scores = torch.randn(2, 3, 4, 5, dtype=torch.float64, requires_grad=True)
    read = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    found = gumbel_attention(scores, 0.7, True, straight_through=share, noise_scale=0.0)
    soft = torch.softmax(scores / 0.7, dim=-1)
    assert_close(found, (1 - float(share)) * soft + float(share) * one_hot_argmax(soft), 1e-12, "weights")
    gradients = [torch.autograd.grad((weights * read).sum(), scores)[0] for weights in (found, soft)]
    assert_close(*gradients, 1e-12, "gradients")


def test_the_share_follows_the_steps():
    schedule = {"gumbel_noise": 0, "gumbel_straight_through": True, "gumbel_straight_through_steps": 4}
    model = tiny_discrete("causal", **schedule).train()
    callback = AnnealingCallback()

    class State:
        global_step = 0

    def losses(step: int) -> set[float]:
        State.global_step = step
        callback.on_step_end(None, State, None)
        return {model(**batch_for("causal")).loss.item()}

    callback.on_train_begin(None, State, None, model=model)
    assert losses(0) != losses(2) != losses(4) == losses(50)
