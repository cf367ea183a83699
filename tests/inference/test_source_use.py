"""Loss of a model without its source, compared with a model that reads one token, for all kinds of models."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, text_model

from hf_attncal.data.words import NO_WORD
from hf_attncal.inference import source_use as measuring
from hf_attncal.inference.reading import token_pairs
from hf_attncal.inference.source_use import source_use
from hf_attncal.metrics.trust import verdict_of


def same(first, second):
    for name in ("swapped", "attention", "diagonal", "contribution", "by_place"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), atol=1e-9)
    assert first.informed == second.informed


def test_falls_are_those_of_one_pair_at_a_time(monkeypatch):
    """Batches and the model's mode change nothing; every number equals the one from a separate pass."""
    model, tokenizer = text_model("marian", "ours"), bpe_tokenizer()
    found = source_use(model, tokenizer, SOURCES, TARGETS)
    assert model.training
    same(found, source_use(model, tokenizer, SOURCES, TARGETS, batch_size=1))

    pairs = token_pairs(model, tokenizer, SOURCES, TARGETS)

    def score(source, target, hidden=()):
        mask = torch.ones(1, len(source))
        encoded = model.get_encoder()(input_ids=torch.tensor([source]), attention_mask=mask)
        mask = mask.clone()
        mask[0, list(hidden)] = 0
        read = torch.tensor([[tokenizer.pad_token_id, *target[:-1]]])
        logits = model(encoder_outputs=encoded, attention_mask=mask, decoder_input_ids=read).logits[0]
        return logits.log_softmax(-1).gather(1, torch.tensor(target)[:, None])[:, 0].numpy()

    model.eval()
    with torch.no_grad():
        for number, pair in enumerate(pairs):
            words = np.flatnonzero(pair.target.word_ids != NO_WORD)
            other = pairs[(number + len(pairs) // 2) % len(pairs)].source.ids.tolist()
            fall = score(pair.source.ids.tolist(), pair.target.ids.tolist()) - score(other, pair.target.ids.tolist())
            np.testing.assert_allclose(found.swapped[number], [fall[words].sum(), len(words)])
    model.train()


def test_places_are_those_of_single_heads_and_of_their_mean():
    """The token with the most attention of a layer, head and step, by loops; the last token has no step after it."""
    generator = np.random.default_rng(0)
    attention, target, places = generator.random((2, 3, 5, 7)), np.array([0, 2, 4]), np.array([1, 3, 4, 6])
    chosen = measuring._chosen_at_places(attention, target, places)
    assert chosen.shape == (2, 4, 2, 3)
    for layer, head, step, number in np.ndindex(chosen.shape):
        heads = attention[layer].mean(axis=0) if head == 3 else attention[layer, head]
        row = heads[min(target[number] + step, 4)]
        assert places[chosen[layer, head, step, number]] == max(places, key=lambda place, row=row: row[place])


def test_a_perfect_method_has_the_effect_of_the_best_tokens(monkeypatch):
    """A perfect method has a share of 1, whatever the model does."""
    model, tokenizer = text_model("marian", "stock"), bpe_tokenizer()
    found = source_use(model, tokenizer, SOURCES, TARGETS)
    assert (found.contribution, found.informed) == (None, None)
    assert (found.attention[:, 1] == found.diagonal[:, 1]).all()
    assert "the model has no masks" in str(verdict_of(found))


def test_no_token_of_no_word_counts_and_long_text_is_cut(monkeypatch):
    model, tokenizer = text_model("marian", "stock"), bpe_tokenizer()
    long = " ".join(SOURCES * 9)
    found = source_use(model, tokenizer, [*SOURCES, long, "", "one"], [*TARGETS, " ".join(TARGETS * 9), "x", ""])
    assert len(found.attention) == len(SOURCES) + 1
    assert found.swapped[-1, 1] <= model.config.max_position_embeddings
    monkeypatch.setattr(measuring, "_MAX_TOKENS", 1)
    assert len(source_use(model, tokenizer, SOURCES, TARGETS).attention) == 1


@pytest.mark.parametrize(("sources", "targets"), [([], []), ([""], ["x"]), (["a"], [""])])
def test_nothing_to_measure(sources, targets):
    assert source_use(text_model("marian", "stock"), bpe_tokenizer(), sources, targets) is None


def test_two_equal_sources_are_no_other(monkeypatch):
    found = source_use(text_model("marian", "stock"), bpe_tokenizer(), SOURCES[:1] * 3, TARGETS[:3])
    assert found.swapped is None
    assert verdict_of(found).level == "do not"


def test_a_model_that_uses_the_attended_token_differs_from_one_that_does_not(monkeypatch):
    """Weights of attention that name what counts, against the same weights turned round."""
    tokenizer = bpe_tokenizer()
    model = text_model("marian", "stock")

    def score_rows(model, tokenizer, rows, batch_size):
        """Score rows of a model in which each target token needs the source token at its position from the end."""
        found = []
        for pair, source, words, hidden in rows:
            needed = len(pair.source.ids) - 2 - words % (len(pair.source.ids) - 1)
            lost = (source[needed] != pair.source.ids[needed]) if len(source) == len(pair.source.ids) else 1
            found.append(-5.0 * (lost + (needed == (hidden[0] if hidden else -1))) * np.ones(len(words)))
        return found

    def read(model, batch, details):
        steps, source = batch["labels"].shape[1], batch["input_ids"].shape[1]
        lengths = batch["attention_mask"].sum(dim=1)
        weights = torch.zeros(len(lengths), 1, steps, source)
        for row, length in enumerate(lengths.tolist()):
            for step in range(steps):
                weights[row, 0, step, length - 2 - step % (length - 1)] = 1
        first = (torch.arange(source) == 0).expand(weights.shape).float()
        return SimpleNamespace(
            attentions=(weights if read.right else first,),
            masks=(None,),
            contributions=(None,),
            target_mask=batch["labels"] != -100,
            source_mask=batch["attention_mask"].bool(),
            unpadded=lambda of, row: of[row][..., batch["attention_mask"][row].bool()],
        )

    monkeypatch.setattr(measuring, "score_rows", score_rows)
    monkeypatch.setattr(measuring, "read", read)
    read.right = True
    right = verdict_of(source_use(model, tokenizer, SOURCES * 3, TARGETS * 3))
    read.right = False
    wrong = verdict_of(source_use(model, tokenizer, SOURCES * 3, TARGETS * 3))
    assert right.measured["attention"].value > 0.9
    assert (right.level, wrong.level) == ("in part", "do not")
