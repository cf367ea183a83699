"""Receptive fields of the Discrete Transformer: exact sets, and their guarantees.

The guarantee: with the routing held fixed (which position every head chose), nothing outside the receptive field of a
prediction reaches it, to the bit. What it is not: another token may change what is chosen, for its key is among those
that queries choose from, and with it the field itself. With two streams the syntactic one reads softly and routes; so
the guarantee is about the semantic stream, which is what the output layer reads, given the syntactic stream's choices.
"""

import itertools

import pytest
import torch
from discrete_helpers import KINDS, TEXTS, batch_for, padded, tiny_discrete
from helpers import TINY, assert_identical
from reference_discrete import union_of_choices

from hf_attncal.models import discrete_layers
from hf_attncal.models.cache import CACHE, named_cache

# One head and few layers, so that fields have an outside; with more heads they soon hold everything.
NARROW = {"encoder_attention_heads": 1, "decoder_attention_heads": 1}
SOURCE, TARGET = [4, 7, 3, 9, 5, 8, 6], [2, 6, 10, 4, 9, 3]


def narrow(kind: str, streams: int, **config):
    return tiny_discrete(kind, streams=streams, **NARROW | config).eval()


def inputs_for(kind: str, source=SOURCE, target=TARGET) -> dict[str, torch.Tensor]:
    if kind == "causal":
        return {"input_ids": torch.tensor([target])}
    return {"input_ids": torch.tensor([source]), "decoder_input_ids": torch.tensor([target])}


class Routing:
    """Records what every attention chooses, or has it choose what was recorded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.choices: list[torch.Tensor] = []
        self.replayed = None
        self.choose = discrete_layers.chosen_positions
        monkeypatch.setattr(discrete_layers, "chosen_positions", self)

    def __call__(self, scores: torch.Tensor) -> torch.Tensor:
        if self.replayed is not None:
            return next(self.replayed)
        self.choices.append(self.choose(scores))
        return self.choices[-1]

    def hold(self) -> None:
        """From here on, the recorded choices again."""
        self.replayed = itertools.cycle(self.choices)


@pytest.fixture
def routing(monkeypatch) -> Routing:
    return Routing(monkeypatch)


def sets_of(fields: torch.Tensor) -> list[set]:
    return [set(row.nonzero().flatten().tolist()) for row in fields]


# ---- the sets ----


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_fields_follow_the_one_hot_weights(kind, streams, heads):
    """Walked by hand from the weights that are given out, layer by layer."""
    both = {"encoder_attention_heads": heads, "decoder_attention_heads": heads, "decoder_layers": 3}
    model = tiny_discrete(kind, streams=streams, **both).eval()
    batch = batch_for(kind, labels=False)
    if kind == "seq2seq":
        batch["decoder_input_ids"] = padded(TEXTS)
    outputs = model(**batch, output_attentions=True, output_receptive_fields=True)
    own = outputs["decoder_attentions" if kind == "seq2seq" else "attentions"]

    def step(fields: list[set], weights: torch.Tensor, read: list[set]) -> list[set]:
        chosen = [[int(head[t].nonzero()) for head in weights] for t in range(len(fields))]
        return [union_of_choices(field, row, read) for field, row in zip(fields, chosen, strict=True)]

    for b in range(2):
        encoder = [{i} for i in range(batch["input_ids"].shape[1])]
        for layer in outputs.get("encoder_attentions") or ():
            encoder = step(encoder, layer[b], encoder)
        target = [{i} for i in range(own[0].shape[2])]
        source = [set() for _ in target]
        for i, layer in enumerate(own):
            source, target = step(source, layer[b], source), step(target, layer[b], target)
            if kind == "seq2seq":
                source = step(source, outputs.cross_attentions[i][b], encoder)
        assert sets_of(outputs.target_receptive_fields[b]) == target
        if kind == "seq2seq":
            assert sets_of(outputs.source_receptive_fields[b]) == source
            assert all(source)


def test_fields_of_given_encoder_outputs():
    model = tiny_discrete("seq2seq", streams=2).eval()
    inputs = inputs_for("seq2seq")
    whole = model(**inputs, output_receptive_fields=True)
    encoded = model.get_encoder()(inputs["input_ids"], output_receptive_fields=True)
    decoder = {"decoder_input_ids": inputs["decoder_input_ids"], "output_receptive_fields": True}
    found = model(encoder_outputs=encoded, **decoder)
    assert torch.equal(found.source_receptive_fields, whole.source_receptive_fields)
    assert encoded.receptive_fields.dtype == torch.bool
    numbers = model.train()(encoder_outputs=encoded, **decoder)  # sets of an evaluation, sampled weights on top
    assert numbers.source_receptive_fields.dtype == torch.float64
    with pytest.raises(ValueError, match=r"`encoder_receptive_fields`.*`output_receptive_fields=True`"):
        model(encoder_outputs=model.get_encoder()(inputs["input_ids"]), **decoder)


# ---- the guarantee ----


def changed(tokens: list[int], index: int) -> list[int]:
    """Another token at this place."""
    return [*tokens[:index], 3 + (tokens[index] - 2) % (TINY["vocab_size"] - 3), *tokens[index + 1 :]]


def neighbours(kind: str):
    """The inputs with one token changed, with the name of the fields that it may be in, and its place there."""
    for j in range(len(TARGET)):
        yield "target_receptive_fields", j, inputs_for(kind, target=changed(TARGET, j))
    for j in range(len(SOURCE) if kind == "seq2seq" else 0):
        yield "source_receptive_fields", j, inputs_for(kind, source=changed(SOURCE, j))


@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_outside_of_its_field_no_token_reaches_a_prediction(kind, streams, routing):
    """Checked to the bit with fixed routing; every token inside its field does reach it."""
    model = narrow(kind, streams)
    before = model(**inputs_for(kind), output_receptive_fields=True)
    routing.hold()
    assert_identical(model(**inputs_for(kind)).logits, before.logits)
    inside = outside = reached = 0
    for fields, j, inputs in neighbours(kind):
        after = model(**inputs).logits
        for t in range(len(TARGET)):
            same = torch.equal(after[0, t], before.logits[0, t])
            if before[fields][0, t, j]:
                inside += 1
                reached += not same
            else:
                outside += 1
                assert same, f"token {j} is outside of {fields} of step {t}, and changed it"
    assert outside > 20
    assert inside > 8
    assert reached == inside


# ---- with a cache ----


@pytest.mark.parametrize(("kind", "streams"), KINDS)
def test_fields_need_all_steps_at_once(kind, streams):
    model = tiny_discrete(kind, streams=streams).eval()
    inputs = inputs_for(kind)
    first = model(**inputs, use_cache=True, output_receptive_fields=True)  # an empty cache is none
    assert first.target_receptive_fields is not None
    name = "decoder_input_ids" if kind == "seq2seq" else "input_ids"
    with pytest.raises(ValueError, match=r"`output_receptive_fields`.*got 6 steps in a cache"):
        model(
            **inputs | {name: torch.tensor([[4]])}, **named_cache(getattr(first, CACHE)), output_receptive_fields=True
        )
    with pytest.raises(ValueError, match=r"`output_receptive_fields`.*`generate`"):
        model.generate(**inputs, max_new_tokens=3, output_receptive_fields=True)
