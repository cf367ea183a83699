"""The analyses of a corpus against loops over single pairs; batches, padding and order; what cannot be observed."""

import math

import numpy as np
import pytest
import torch
from helpers import FAMILIES
from peft import get_peft_model
from reference_observations import observe_slowly
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, randomized, sized, text_model, with_masks
from transformers import BertConfig, BertModel

from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.data.word_tokens import tokenize_words
from hf_attncal.metrics.reliability import (
    LEAST_SPREAD,
    MAX_NORMALIZED_DIVERGENCE,
    NEED_INFORMATION,
    STEP_MEASURES,
    attention_entropy,
    mask_spread,
)
from hf_attncal.models.functional import divergence, row_shares
from hf_attncal.report import observations
from hf_attncal.report.corpus import Corpus, tags_of
from hf_attncal.report.observations import BUCKET_NAMES, TOKEN_GROUPS, observe

THRESHOLDS, BUCKETS = (1.5, 2.0, 2.25, 2.5, 2.75), (0.4, 0.8, 1.2, 1.6)


def tag_of(word: str) -> str:
    return "mark" if word in (".", "?", ",", "!") else "capital" if word[0].isupper() else "small"


def tags_of_text(text: str) -> list[str]:
    return [tag_of(word) for word in text.split()]


TAGS = [tags_of_text(text) for text in TARGETS]


@pytest.fixture(scope="module")
def bounds():
    """Bounds of entropy that random models reach."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observations, "ENTROPY_THRESHOLDS", THRESHOLDS)
        patch.setattr(observations, "BUCKETS", BUCKETS)
        yield


def word_ids_of(text: str, target: bool = False) -> list[int]:
    return tokenize_words(bpe_tokenizer(), [text], target=target)[0].word_ids.tolist()


def mean(counts: np.ndarray) -> np.ndarray:
    total = counts.sum(axis=0)
    return total[..., 0] / total[..., 1]


@pytest.fixture(scope="module", params=["marian", "bart"])
def both(request, bounds):
    """Return our results, and the results of the loops."""
    model = text_model(request.param, "ours")
    found = observe(model, bpe_tokenizer(), SOURCES, TARGETS, tags=TAGS, alignments=True, batch_size=4)
    pairs = list(zip(SOURCES, TARGETS, strict=True))
    return found, observe_slowly(model, bpe_tokenizer(), word_ids_of, pairs, tag_of, THRESHOLDS, BUCKETS)


# ---- against loops ----


@pytest.mark.parametrize("measure", STEP_MEASURES)
def test_means_are_those_of_the_formulas(both, measure):
    found, slow = both
    assert found.layers[measure] == found.calibrated == (0, 1, 2)
    for layer in range(3):
        assert found.mean(measure, layer) == pytest.approx(slow.mean(measure, layer), abs=1e-10)
        if measure in found.by_head:
            for head, value in enumerate(found.by_head[measure][layer]):
                assert value == pytest.approx(slow.mean("head", measure, layer, head), abs=1e-10)
    # The values differ, so that another layer's or a constant would be noticed; random masks are all apart.
    assert measure == "informed" or len({round(found.mean(measure, layer), 9) for layer in range(3)}) > 1


def test_the_curve_over_entropy_is_that_of_the_formulas(both):
    found, slow = both
    for layer in range(3):
        levels, shares = found.reliability_up_to(layer).sum(axis=0), mean(found.steps_up_to(layer))
        for place, bound in enumerate(THRESHOLDS):
            key = "up to", layer, bound
            assert levels[place].tolist() == [slow.sums[key], slow.numbers[key]]
            assert shares[place] == pytest.approx(slow.numbers[key] / found.steps.sum(), abs=1e-12)
    below = {slow.numbers["up to", layer, bound] for layer in range(3) for bound in THRESHOLDS}
    assert len(below - {0, found.steps.sum()}) > 6  # the thresholds are not beside the data


def test_divergence_by_entropy_is_that_of_the_formulas(both):
    found, slow = both
    filled = 0
    for layer in range(3):
        counts = found.divergence_in(layer).sum(axis=0)
        for bucket, (total, number) in enumerate(counts):
            key = "bucket", layer, bucket
            assert (total, number) == (pytest.approx(slow.sums[key], abs=1e-10), slow.numbers[key])
            filled += number > 0
    assert filled > 6
    assert BUCKET_NAMES == ("0 to 0.8", "0.8 to 1.6", "1.6 to 2.4", "2.4 to 3.2", "above 3.2")


@torch.no_grad()
def test_a_bound_belongs_to_its_threshold_and_to_the_bucket_above(monkeypatch):
    """Attention that is even over four tokens, whose entropy is a number of the machine."""
    config, model_class = FAMILIES["marian"][2:]
    model = model_class(config(**sized(bpe_tokenizer()), calibration="fixed")).double()
    for block in model.get_decoder().layers:
        for parameter in block.encoder_attn.q_proj.parameters():
            parameter.zero_()
    words = {word for text in SOURCES for word in text.split()}
    source = next(word for word in sorted(words) if len(word_ids_of(word)) == 4)
    bound = attention_entropy(torch.full((1, 1, 1, 4), 0.25, dtype=torch.float64)).item()
    for name in ("ENTROPY_THRESHOLDS", "BUCKETS"):
        monkeypatch.setattr(observations, name, (bound,))
    found = observe(model, bpe_tokenizer(), [source], TARGETS[:1])
    (steps,), heads = found.steps, found.by_head["entropy"].shape[1]
    assert found.by_threshold[0, :, :, 0].tolist() == [[steps, 0]] * 3
    assert found.by_bucket[0, :, :, 1].tolist() == [[0, heads * steps]] * 3


def test_tags_are_those_of_the_words_of_the_steps(both):
    found, slow = both
    assert set(found.tags) == {"mark", "capital", "small"}
    numbers = [sum(tag_of(word) == tag for text in TARGETS for word in text.split()) for tag in found.tags]
    assert numbers == sorted(numbers, reverse=True)
    for layer in range(3):
        for measure in ("reliability", "average_entropy"):
            for tag, (total, number) in zip(found.tags, found.of_tag(measure, layer).sum(axis=0), strict=True):
                key = "tag", measure, layer, tag
                assert (total, number) == (pytest.approx(slow.sums[key], abs=1e-10), slow.numbers[key])
    # Special tokens have no tag.
    assert found.tag_steps.sum() == found.steps.sum() - len(TARGETS)


def test_groups_of_source_tokens_share_what_null_leaves(both):
    found, slow = both
    for layer in range(3):
        received = mean(found.attention_of_groups(layer))
        for group in range(len(TOKEN_GROUPS)):
            assert received[group] == pytest.approx(slow.mean("group", layer, group), abs=1e-10)
        assert received.sum() + found.mean("null", layer) == pytest.approx(1, abs=1e-10)
        assert received.min() > 0


def test_best_words_and_predictions_are_those_of_the_loops(both):
    found, slow = both
    for name in ("attention", "contribution"):
        for layer in range(3):
            for index, links in enumerate(found.links(name, layer)):
                words = len(TARGETS[index].split())
                assert links == {(slow.sums["best", name, index, layer, j], j) for j in range(words)}
    assert found.links("attention", 0) != found.links("contribution", 0) != found.links("contribution", 1)
    for index, predicted in enumerate(found.predicted):
        assert predicted.tolist() == [slow.sums["predicted", index, j] for j in range(len(predicted))]


@pytest.mark.parametrize("kind", ["stock", "ours"])
def test_norms_are_those_of_the_value_vectors(family, kind):
    model = text_model(family, kind)
    found = observe(model, bpe_tokenizer(), SOURCES, TARGETS, batch_size=3)
    tokens = np.zeros(3)
    norms = np.zeros((3, 3))
    for source in SOURCES:
        with torch.no_grad():
            inputs = bpe_tokenizer()([source], return_tensors="pt")
            states = model.eval().get_encoder()(**inputs).last_hidden_state[0]
            model.train()
        for token, word in enumerate(word_ids_of(source)):
            group = 2 if word < 0 else int(source.split()[word] in ".?,!")
            tokens[group] += 1
            for layer, block in enumerate(model.get_decoder().layers):
                attention = block.encoder_attn
                vector = attention.v_proj.weight @ states[token] + attention.v_proj.bias
                heads = vector.detach().view(attention.num_heads, -1).tolist()
                norms[layer, group] += sum(math.hypot(*head) for head in heads) / len(heads)
    for layer in range(3):
        assert mean(found.norms_of_groups(layer)) == pytest.approx(norms[layer] / tokens, abs=1e-10)
    if kind == "ours":
        for layer, block in enumerate(model.get_decoder().layers):
            heads = [math.hypot(*head) for head in block.encoder_attn.null.value.tolist()]
            assert found.null_norms[layer] == pytest.approx(sum(heads) / len(heads), abs=1e-10)
    else:
        assert found.null_norms == {}


def test_divergence_of_rows():
    """By hand: two rows that share a token, the same row at another scale, rows without a token in common."""
    first = torch.tensor([[[[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]], dtype=torch.float64)
    second = torch.tensor(
        [[[[0.0, 0.5, 0.5], [0.3, 1.2, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]]]], dtype=torch.float64
    )
    expected = [0.5 * math.log(2), 0, math.log(2), 0]
    for rows in ((first, second), (second, first)):
        assert divergence(*map(row_shares, rows)).flatten().tolist() == pytest.approx(expected, abs=1e-15)
    by_mass = 0.5 * (math.log(2 / 2.5) + 1.5 * math.log(3 / 2.5))  # one factor for all tokens of a row: 1.5
    as_they_are = [0.5 * math.log(2), by_mass, 0.5 * (math.log(2) + 2 * math.log(2)), 0]
    assert by_mass == pytest.approx(0.0252, abs=5e-5)
    for rows in ((first, second), (second, first)):
        assert divergence(*rows).flatten().tolist() == pytest.approx(as_they_are, abs=1e-15)


def test_shares_of_calibrated_rows_differ_by_at_most_the_bound():
    """The bound is reached where one token keeps its weight and the other gets the factor e."""
    x = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    rows = torch.stack([1 - x, x], dim=-1)[None, None]
    scaled = rows * torch.tensor([1, math.e])
    largest = divergence(row_shares(rows), row_shares(scaled)).max().item()
    assert largest == pytest.approx(MAX_NORMALIZED_DIVERGENCE, abs=5e-5)
    assert divergence(rows, scaled).max().item() > 5 * largest


# ---- masks without information ----


@pytest.mark.parametrize("number", [1, 0.5, 0])
def test_results_from_uninformative_masks_are_withheld(number):
    """Masks are uninformative if they keep all tokens, blur all, or treat all alike."""
    flat = {layer: {0: number, 1: number} for layer in range(3)}
    model = with_masks(text_model("marian", "ours"), flat)
    found = observe(model, bpe_tokenizer(), SOURCES, TARGETS, tags=TAGS, alignments=True)
    assert found.calibrated == ()
    assert found.idle == (0, 1, 2)
    assert not found.is_changed
    assert found.mean("mask", 1) == pytest.approx(number, abs=1e-6)
    assert found.mean("informed", 1) == 0
    for measure in NEED_INFORMATION:
        assert np.isnan(found.by_head[measure]).all()
        with pytest.raises(ValueError, match=rf"'{measure}'.*`attncal adapt`"):
            found.counts(measure, 1)
    for withheld in (found.reliability_up_to, found.divergence_in, lambda n: found.links("contribution", n)):
        with pytest.raises(ValueError, match="uninformative"):
            withheld(0)
    with pytest.raises(ValueError, match="uninformative"):
        found.of_tag("reliability", 0)
    assert found.mean("entropy", 2) > 0
    assert found.links("attention", 2)


def test_layers_and_heads_are_judged_one_by_one():
    model = text_model("marian", "ours")
    usual = observe(model, bpe_tokenizer(), SOURCES, TARGETS)
    found = observe(with_masks(model, {0: {0: 1, 1: 1}, 2: {0: 1}}), bpe_tokenizer(), SOURCES, TARGETS)
    assert (found.calibrated, found.idle) == ((1, 2), (0,))
    assert usual.idle == ()
    assert np.isnan(found.by_head["reliability"][2]).tolist() == [True, False]
    assert np.isfinite(found.by_head["reliability"][1]).all()
    assert found.mean("informed", 2) > 0.9
    with pytest.raises(ValueError, match=r"'reliability'.*\[1, 2\].*got 0"):
        found.counts("reliability", 0)


def test_the_spread_of_masks_is_over_real_tokens_and_does_not_depend_on_their_number():
    mask = torch.tensor([[[[1.0, 0.25, 1.0, 0.0], [0.5, 0.5, 0.5, 1.0]]]])
    real = torch.tensor([[1, 1, 1, 0]])
    assert mask_spread(mask, real).tolist() == [[[0.75, 0.0]]]
    assert mask_spread(mask).tolist() == [[[1.0, 0.5]]]
    long = torch.nn.functional.pad(mask[..., :3], (0, 2000), value=1.0)
    assert mask_spread(long).tolist() == [[[0.75, 0.5]]]  # though their mean is 0.9996
    # Just below the threshold two masks beside 1 are at most one step of bfloat16 apart.
    near = torch.tensor([1.0, 1 - 0.499 * LEAST_SPREAD]).bfloat16()
    assert (near[0] - near[1]).item() <= LEAST_SPREAD / 2


# ---- invariance ----


def values_of(found) -> dict[str, np.ndarray]:
    names = ("steps", "by_threshold", "by_bucket", "by_tag", "tag_steps", "by_group", "group_tokens", "group_norms")
    return {name: getattr(found, name) for name in names} | found.by_layer


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_batches_and_padding_change_nothing(batch_size, bounds):
    model = text_model("marian", "ours")
    usual = observe(model, bpe_tokenizer(), SOURCES, TARGETS, tags=TAGS, alignments=True)
    options = {"tags": TAGS, "alignments": True, "batch_size": batch_size}
    again = observe(model, bpe_tokenizer(), SOURCES, TARGETS, **options)
    for name, values in values_of(again).items():
        np.testing.assert_allclose(values, values_of(usual)[name], rtol=0, atol=1e-9, err_msg=name)
    assert again.links("contribution", 1) == usual.links("contribution", 1)


def test_pairs_without_words_are_left_out_and_keep_their_places():
    model = text_model("marian", "ours")
    sources, targets = ["", SOURCES[0], "x"], ["y", TARGETS[0], " "]
    tags = [tags_of_text(text) for text in targets]
    found = observe(model, bpe_tokenizer(), sources, targets, tags=tags, alignments=True)
    alone = observe(model, bpe_tokenizer(), SOURCES[:1], TARGETS[:1], alignments=True)
    assert found.pairs.tolist() == [1]
    assert found.mean("divergence", 1) == alone.mean("divergence", 1)
    assert found.links("attention", 0) == [frozenset(), *alone.links("attention", 0), frozenset()]
    assert [len(of) for of in found.predicted] == [1, len(TARGETS[0].split()), 0]
    assert not found.predicted[0].any()


def test_the_model_is_unchanged(family):
    model = text_model(family, "ours")
    kernel, hooks = model.config._attn_implementation, sum(len(m._forward_hooks) for m in model.modules())
    observe(model, bpe_tokenizer(), SOURCES[:2], TARGETS[:2])
    assert model.training
    assert model.config._attn_implementation == kernel
    assert sum(len(m._forward_hooks) for m in model.modules()) == hooks


# ---- other models ----


def test_a_stock_model_has_what_needs_no_masks(family):
    found = observe(text_model(family, "stock"), bpe_tokenizer(), SOURCES, TARGETS, tags=TAGS, alignments=True)
    assert {measure for measure, layers in found.layers.items() if layers} == {"entropy", "average_entropy"}
    assert found.calibrated == ()
    assert found.mean("entropy", 2) > 0
    assert found.group_norms.min() > 0
    assert len(found.links("attention", 2)) == len(SOURCES)
    for measure in ("reliability", "divergence", "mask"):
        with pytest.raises(ValueError, match=rf"'{measure}'.*`calibration`"):
            found.counts(measure, 0)
    with pytest.raises(ValueError, match=r"'null'.*`leaky`"):
        found.counts("null", 0)
    for refused in (found.reliability_up_to, found.divergence_in, lambda n: found.links("contribution", n)):
        with pytest.raises(ValueError, match="`calibration`"):
            refused(0)


def test_an_adapter_on_one_layer_leaves_the_others_plain():
    stock_config, stock_model, *_ = FAMILIES["marian"]
    base = randomized(stock_model(stock_config(**sized(bpe_tokenizer()))).double())
    plain = observe(base, bpe_tokenizer(), SOURCES, TARGETS)
    adapted = get_peft_model(base, AttentionCalibrationConfig(calibration="gated", leaky=True, layers=[1]))
    randomized(adapted)
    found = observe(adapted, bpe_tokenizer(), SOURCES, TARGETS, tags=TAGS, alignments=True)
    assert found.calibrated == found.layers["null"] == (1,)
    assert found.layers["entropy"] == (0, 1, 2)
    assert found.mean("entropy", 0) == pytest.approx(plain.mean("entropy", 0), abs=1e-9)
    assert set(found.null_norms) == {1}
    assert found.group_norms.min() > 0
    assert found.mean("divergence", 1) > 0
    with pytest.raises(ValueError, match=r"`layer`.*'reliability'.*\[1\].*got 0"):
        found.counts("reliability", 0)


def test_a_model_without_values_that_are_known_has_no_norms(monkeypatch):
    """As T5's are."""
    model = text_model("marian", "stock")
    monkeypatch.setattr("hf_attncal.report.observations.check_blocks", _refuse)
    found = observe(model, bpe_tokenizer(), SOURCES[:2], TARGETS[:2])
    assert not found.group_norms.any()
    assert found.null_norms == {}
    assert found.mean("entropy", 0) > 0


def _refuse(model):
    raise ValueError("it is built in another way")


def test_attention_that_a_mask_does_not_touch_does_not_change():
    """With m = 1 fixed calibration is `a + 0.1 a`, the same shares at 1.1 times the mass."""
    config, model_class = FAMILIES["marian"][2:]
    model = randomized(model_class(config(**sized(bpe_tokenizer()), calibration="fixed")).double())
    for block in model.get_decoder().layers:
        block.encoder_attn.mask_network.forward = lambda states, query, key, constant: torch.ones(
            *query.shape[:3], key.shape[2], dtype=query.dtype
        )
    found = observe(model, bpe_tokenizer(), SOURCES, TARGETS)
    for layer in range(3):
        assert found.mean("mask", layer) == 1
        assert found.mean("mass", layer) == pytest.approx(1.1, abs=1e-12)
    scaled = 0.5 * (math.log(2 / 2.1) + 1.1 * math.log(2.2 / 2.1))
    assert found.by_layer["divergence"].sum(axis=0) == pytest.approx(found.steps.sum() * scaled, abs=1e-10)
    assert found.by_layer["divergence_normalized"] == pytest.approx(0, abs=1e-12)
    assert found.by_layer["entropy_change"] == pytest.approx(0, abs=1e-12)
    assert not found.by_layer["moved"].any()


# ---- what is refused ----


def test_observations_that_are_impossible_are_refused():
    model = text_model("marian", "ours")
    with pytest.raises(ValueError, match="got none among 0 and 0"):
        observe(model, bpe_tokenizer(), [], [])
    with pytest.raises(ValueError, match="got none among 1 and 1"):
        observe(model, bpe_tokenizer(), ["a"], [" "])
    with pytest.raises(ValueError, match="must be pairs, got 2 and 1"):
        observe(model, bpe_tokenizer(), ["a", "b"], ["c"])
    bert = BertModel(BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    with pytest.raises(ValueError, match="must be an encoder-decoder, got one of type 'bert'"):
        observe(bert, bpe_tokenizer(), SOURCES, TARGETS)


def test_missing_observations_are_refused_with_the_remedy():
    found = observe(text_model("marian", "ours"), bpe_tokenizer(), SOURCES, TARGETS)
    with pytest.raises(ValueError, match="by tag need `tags`, got none"):
        found.of_tag("reliability", 0)
    with pytest.raises(ValueError, match=r"`observe`.*`alignments=True`"):
        found.links("attention", 0)
    with pytest.raises(ValueError, match=r"`measure`.*got 'luck'"):
        found.counts("luck", 0)
    with pytest.raises(ValueError, match=r"`layer`.*'entropy'.*\[0, 1, 2\].*got 3"):
        found.counts("entropy", 3)


# ---- tags ----


def test_tags_that_do_not_fit_name_the_line():
    model = text_model("marian", "ours")
    given = TAGS[:]
    given[2] = given[2][:-1]
    words = len(TARGETS[2].split())
    with pytest.raises(ValueError, match=rf"line 3: .*{words} tags.*got {words - 1}"):
        observe(model, bpe_tokenizer(), SOURCES, TARGETS, tags=given)
    with pytest.raises(ValueError, match=rf"{len(TARGETS)}.*got {len(TARGETS) - 1}"):
        observe(model, bpe_tokenizer(), SOURCES, TARGETS, tags=given[:-1])
    with pytest.raises(ValueError, match=r"line 1: .*2 tags.*'NN'"):
        tags_of(["a b"], ["NN"])


def test_tags_of_a_file_are_those_of_its_lines(tmp_path):
    path = tmp_path / "tags.txt"
    path.write_text("DET  NOUN\n\nVERB\n", encoding="utf-8")
    texts = ["the house", "", "go"]
    assert Corpus.read(texts, texts, tags=path).tags == [("DET", "NOUN"), (), ("VERB",)]
    texts = [*texts[:2], "go away"]
    with pytest.raises(ValueError, match=r"tags.txt: line 3: .*got 1"):
        Corpus.read(texts, texts, tags=path)


# ---- entropy of a row without mass ----


def test_a_row_that_went_to_null_has_entropy_0_and_does_not_diverge():
    nothing = torch.zeros(1, 1, 1, 3)
    assert attention_entropy(nothing).item() == 0
    assert divergence(nothing, nothing).item() == 0
