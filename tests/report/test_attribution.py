"""Attributions against the loops of tests/reference_attribution.py, and what must hold whatever the model."""

import copy
import functools
from types import SimpleNamespace

import pytest
import reference_attribution as slow
import torch
from helpers import FAMILIES, assert_close, scatter
from luong_helpers import tiny_luong
from peft import get_peft_model
from seq2seq_helpers import PAIRS, bpe_tokenizer, randomized, sized, skip_without_cross_attention_of_t5
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_attncal import DiscreteTransformerConfig, DiscreteTransformerForConditionalGeneration
from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.data.words import NO_WORD
from hf_attncal.inference.reading import batches_of_pairs, readable, teacher_forced
from hf_attncal.report import alti
from hf_attncal.report.alti import Block, read_blocks
from hf_attncal.report.attribution import METHODS, attribute, log_probabilities, works_on

# Of different lengths, so that batches have padding on both sides.
LENGTHS = [(2, 3), (4, 2), (3, 3)]
SOURCES = [" ".join(pair.source[:length]) for pair, (length, _) in zip(PAIRS, LENGTHS, strict=False)]
TARGETS = [" ".join(pair.target[:length]) for pair, (_, length) in zip(PAIRS, LENGTHS, strict=False)]


@functools.cache
def model_of(name: str, wild: bool = True):
    """A random model in float64 and training mode, that tests share and do not change; no parameter is 0 or 1.

    Attention of a wild one is far from even; the others are smoother functions.
    """
    family, _, kind = name.partition(" ")
    fields = sized(bpe_tokenizer(), decoder_layers=2)
    torch.manual_seed(3)
    if family in FAMILIES:
        stock_config, stock_model, our_config, our_model = FAMILIES[family]
        if kind in ("stock", "adapted"):
            model = stock_model(stock_config(**fields))
        else:
            kinds = {"gated": {"calibration": "gated"}, "leaky": {"calibration": "fixed", "leaky": True}}
            switches = kinds.get(kind, {"leaky": True, "output_gate": True})
            model = our_model(our_config(**fields, **switches))
    elif family == "m2m100":
        model = M2M100ForConditionalGeneration(M2M100Config(**fields))
    else:
        model = MBartForConditionalGeneration(MBartConfig(**fields))
    if kind == "adapted":
        settings = {"calibration": "gated", "leaky": True, "layers": [1], "task_type": "SEQ_2_SEQ_LM"}
        model = get_peft_model(model, AttentionCalibrationConfig(**settings)).get_base_model()
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    if wild:
        randomized(model.double())
    scatter(model.double(), 0.2)
    with torch.no_grad():  # so large that a NULL that is forgotten shows
        for name, parameter in model.named_parameters():
            if "null" in name and name.endswith("value"):
                parameter *= 10
    return model.train()


# Post-norm with NULL, with it in one layer of two, stock, and pre-norm; the others go the same ways.
NAMES = ["marian leaky", "marian adapted", "bart stock", "m2m100"]
MORE_NAMES = ["marian stock", "marian gated", "bart leaky", "mbart"]


@pytest.fixture(params=[*NAMES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_NAMES)])
def model(request):
    return model_of(request.param)


def null_value(attention):
    for module in attention.modules():
        switches = getattr(module, "switches", None)
        if switches is not None and switches.leaky:
            return module.null.value.detach()
    return None


def found_by(model, method: str, sources=SOURCES, targets=TARGETS, **options) -> list:
    """The attributions in the order of the pairs."""
    found = {a.index: a for a in attribute(model, bpe_tokenizer(), sources, targets, method, **options)}
    return [found[index] for index in sorted(found)]


def token_ids(index: int) -> tuple[list[int], list[int], list[int]]:
    """Source, what the decoder reads, and labels."""
    tokenizer = bpe_tokenizer()
    source, labels = (tokenizer(side[index])["input_ids"] for side in (SOURCES, TARGETS))
    return source, labels


def arguments_of(model, index: int) -> tuple[list[int], list[int], list[int]]:
    source, labels = token_ids(index)
    read = teacher_forced(model, {"labels": torch.tensor([labels])})[0]["decoder_input_ids"]
    return source, read[0].tolist(), labels


@pytest.fixture
def reading(model):
    """The loops' reading of the second pair; the model is put back."""
    yield slow.SlowReading(model, *token_ids(1), null_value)
    model.train().set_attn_implementation("sdpa")


# ---- against the loops ----


def blocks_of(model):
    """The pairs of a batch, and the blocks that are read of it."""
    ((pairs, tensors),) = batches_of_pairs(model, bpe_tokenizer(), SOURCES, TARGETS)
    with readable(model, False, True), torch.no_grad():
        return pairs, *read_blocks(model, tensors)


@torch.no_grad()
def parts_and_output(block) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of the vectors of a block without its bias, and its output."""
    vectors = torch.einsum("bhtj,bhjd->btjd", block.weights, block.transformed())
    output = block.state if block.norm is None else block.norm(block.state)
    return block.g(vectors).sum(dim=2) + block.g(block.residual), output


def test_the_parts_of_all_blocks_add_up_to_the_output_of_the_model(model, reading):
    assert_close(reading.encoder_matches, reading.encoded, 1e-10)
    assert_close(reading.decoder_matches, reading.decoder_output, 1e-10)
    pairs, encoder, decoder = blocks_of(model)
    row = [pair.index for pair in pairs].index(1)
    steps, tokens = len(pairs[row].target.ids), len(pairs[row].source.ids)
    expected = [(own, found.own) for own, found in zip(encoder, reading.encoder, strict=True)]
    for (own, cross), found in zip(decoder, reading.decoder, strict=True):
        expected += [(own, found.own), (cross, found.cross)]
    for block, found in expected:
        parts, output = parts_and_output(block)
        length = len(found.output)
        assert length in (steps, tokens)
        assert_close(output[row, :length], found.output, 1e-10)
        assert_close((output - parts)[row, :length], torch.stack(found.bias), 1e-10)


def test_the_parts_add_up_after_an_output_gate():
    """It scales what each head reads, as if its weights were scaled; what is left is a bias, the same at all steps."""
    for _, cross in blocks_of(model_of("marian output gate"))[2]:
        assert (cross.weights.sum(dim=-1) - 1).abs().max() > 0.1
        parts, output = parts_and_output(cross)
        bias = cross.g(cross.attention.out_proj.bias.expand_as(cross.state)) + cross.norm.bias
        assert_close(parts + bias.detach(), output, 1e-10)


def test_alti_is_that_of_the_loops(model, reading):
    source, prefix, null = slow.slow_alti_flow(reading)
    found = found_by(model, "alti")[1]
    assert_close(found.scores, source, 1e-10)
    assert_close(found.prefix, prefix, 1e-10)
    assert (found.null is not None) == any(part is not None for part in reading.nulls)
    if found.null is not None:
        assert_close(found.null, null, 1e-10)
        assert float(found.null.max()) > 1e-4


@pytest.mark.parametrize("is_self_attention", [True, False])
def test_a_row_of_which_no_vector_comes_close_is_the_residuals(is_self_attention):
    """An output bias outweighs all else, which points the other way."""
    projection = torch.nn.Linear(2, 2)
    with torch.no_grad():
        projection.weight.copy_(torch.eye(2))
        projection.bias.fill_(100.0)
        weights, values, residual = torch.full((1, 1, 3, 3), 1 / 3), -torch.ones(1, 1, 3, 2), -torch.ones(1, 3, 2)
        attention = SimpleNamespace(out_proj=projection)
        block = Block(attention, weights, values, residual, residual + 99.0, None, False, is_self_attention)
        tokens, alone = block.shares()
    assert not tokens.any()
    assert torch.equal(alone, torch.ones(1, 3))


# ---- weights ----


@pytest.mark.parametrize(("layer", "head"), [(None, None), (1, 0), (-2, None), (None, 1)])
def test_attention_is_the_mean_of_what_is_chosen(model, layer, head):
    source, _, labels = arguments_of(model, 1)
    model.eval().set_attn_implementation("eager")
    with torch.no_grad():
        outputs = model(
            input_ids=torch.tensor([source]), labels=torch.tensor([labels]), use_cache=False, output_attentions=True
        )
    model.train().set_attn_implementation("sdpa")
    weights = torch.stack([weights[0] for weights in outputs.cross_attentions])  # (layers, heads, steps, source)
    weights = weights.mean(dim=0) if layer is None else weights[layer]
    expected = weights.mean(dim=0) if head is None else weights[head]
    assert_close(found_by(model, "attention", layer=layer, head=head)[1].scores, expected, 1e-10)


def test_null_is_what_weights_of_leaky_attention_lack():
    model = model_of("marian leaky")
    model.config.calibration = None
    try:
        found = found_by(model, "attention")
    finally:
        model.config.calibration = "fixed"
    for one in found:
        total = one.scores.sum(dim=1) + one.null
        assert_close(total, torch.ones_like(total), 1e-10)
        assert float(one.null.min()) > 1e-3


def test_attention_before_its_calibration():
    model = model_of("marian leaky")
    source, _, labels = arguments_of(model, 2)
    model.eval()
    with torch.no_grad():
        outputs = model(input_ids=torch.tensor([source]), labels=torch.tensor([labels]), output_attention_details=True)
    model.train()
    before = outputs.uncalibrated_cross_attentions
    chosen = {"layer": 1, "head": 0, "calibrated": False}
    assert_close(found_by(model, "attention", **chosen)[2].scores, before[1][0, 0], 1e-10)
    mean = sum(layer[0].mean(dim=0) for layer in before) / 2
    found = found_by(model, "attention", calibrated=False)[2].scores
    assert_close(found, mean, 1e-10)
    assert not torch.allclose(found, found_by(model, "attention")[2].scores)


def test_contributions_are_those_of_the_masks():
    model = model_of("marian leaky")
    source, _, labels = arguments_of(model, 2)
    model.eval()
    with torch.no_grad():
        outputs = model(input_ids=torch.tensor([source]), labels=torch.tensor([labels]), output_attention_details=True)
    model.train()
    details = (outputs.uncalibrated_cross_attentions, outputs.calibration_masks, outputs.null_attentions)
    layers = []
    for a, m, null in zip(*details, strict=True):
        mean = ((1 - null) / a.shape[-1])[..., None]
        layers.append((m * a + (1 - m) * mean - a).abs()[0].mean(dim=0))
    assert_close(found_by(model, "contribution")[2].scores, sum(layers) / 2, 1e-10)
    assert_close(found_by(model, "contribution", layer=1)[2].scores, layers[1], 1e-10)


def test_an_adapter_has_contributions_where_it_has_masks():
    model = model_of("marian adapted")
    (mean, top) = (found_by(model, "contribution", **chosen) for chosen in ({}, {"layer": -1}))
    assert_close(mean[0].scores, top[0].scores)
    with pytest.raises(ValueError, match=r"`layer`.*\[1\].*got 0"):
        attribute(model, bpe_tokenizer(), SOURCES, TARGETS, "contribution", layer=0)


# ---- occlusion ----


@pytest.mark.parametrize("name", ["marian leaky", "mbart", "copies"])
@torch.no_grad()
def test_the_log_probabilities_of_some_steps_are_those_of_all(name):
    """Of a model that copies, too, which adds something to what the layer of the vocabulary says."""
    if name == "copies":
        _, _, config, model_class = FAMILIES["marian"]
        torch.manual_seed(3)
        model = randomized(model_class(config(**sized(bpe_tokenizer(), decoder_layers=2), copy=True)).double())
    else:
        model = model_of(name)
    training = model.training
    _, tensors = next(iter(batches_of_pairs(model, bpe_tokenizer(), SOURCES, TARGETS)))
    batch = teacher_forced(model.eval(), tensors)
    whole = log_probabilities(model, *batch)
    steps = torch.tensor([[2, 0], [1, 1], [0, 2]])
    assert_close(log_probabilities(model, *batch, steps=steps), whole.gather(1, steps), 1e-10)
    assert_close(log_probabilities(model, *batch), whole, 1e-10)  # nothing is left behind
    model.train(training)


def test_occlusion_is_a_pass_for_each_word(model):
    found = found_by(model, "occlusion")[1]
    source, read, labels = arguments_of(model, 1)
    word_ids = found.source.word_ids.tolist()
    assert any(len(places) > 1 for places in found.source.tokens_of_words())  # what a word with subwords gets
    model.eval()
    whole = slow.slow_log_probabilities(model, source, read, labels)
    for place in range(len(source)):
        together = [place]
        if word_ids[place] != NO_WORD:
            together = [n for n, word in enumerate(word_ids) if word == word_ids[place]]
        replaced = [bpe_tokenizer().unk_token_id if n in together else token for n, token in enumerate(source)]
        fall = whole - slow.slow_log_probabilities(model, replaced, read, labels)
        assert_close(found.scores[:, place], fall / len(together), 1e-10)
    model.train()


# ---- controls ----


def test_random_scores_depend_only_on_the_pair():
    model = model_of("marian stock")
    twice = found_by(model, "random", [*SOURCES, SOURCES[0]], [*TARGETS, TARGETS[0]])
    assert torch.equal(twice[0].scores, twice[-1].scores)
    assert torch.equal(twice[0].scores, found_by(model, "random", SOURCES[:1], TARGETS[:1])[0].scores)
    other = found_by(model, "random", SOURCES[:1], [TARGETS[0] + " ."])[0].words()
    assert not torch.equal(other[0], twice[0].words()[0])


def test_the_diagonal_is_where_it_should_be():
    model = model_of("marian stock")
    (found,) = found_by(model, "diagonal", ["a b c d"], ["e f"])
    words = found.words()
    expected = torch.tensor([[1 - abs((j + 0.5) / 2 - (i + 0.5) / 4) for i in range(4)] for j in range(2)])
    assert_close(words, (expected / expected.sum(dim=1, keepdim=True)).to(words.dtype), 1e-6)


# ---- whatever the method ----


@pytest.mark.third("model", "method")
@pytest.mark.parametrize("method", METHODS)
def test_batches_order_and_padding_change_nothing(model, method):
    if method not in works_on(model):
        assert method == "contribution"  # of calibrated models only
        return
    together = found_by(model, method)
    backwards = found_by(model, method, SOURCES[::-1], TARGETS[::-1], batch_size=2)[::-1]
    for index, (found, other) in enumerate(zip(together, backwards, strict=True)):
        (alone,) = found_by(model, method, [SOURCES[index]], [TARGETS[index]])
        source, labels = token_ids(index)
        assert found.scores.shape == (len(labels), len(source))
        assert found.words().shape == (len(TARGETS[index].split()), len(SOURCES[index].split()))
        for one in (other, alone):
            for name in ("scores", "prefix", "null"):
                tensors = [getattr(attribution, name) for attribution in (found, one)]
                if tensors[0] is None:
                    assert tensors[1] is None
                else:
                    assert_close(*tensors, 1e-10, f"{method} {name}")
    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert all(parameter.grad is None for parameter in model.parameters())


def test_shares_sum_to_one_and_see_no_future(model):
    for found in found_by(model, "alti"):
        total = found.scores.sum(dim=1) + found.prefix.sum(dim=1) + (0 if found.null is None else found.null)
        assert_close(total, torch.ones_like(total), 1e-10)
        assert float(found.scores.min()) >= 0
        assert not found.prefix.triu(1).any()


def test_long_sentences_are_taken_apart_in_pieces(monkeypatch):
    model = model_of("bart leaky")
    whole = found_by(model, "alti")
    monkeypatch.setattr(alti, "_MAX_CHUNK_NUMBERS", 1)
    for found, one in zip(found_by(model, "alti"), whole, strict=True):
        assert_close(found.scores, one.scores, 1e-12)


def test_signed_scores_of_subwords_are_added_up():
    found = found_by(model_of("marian stock"), "occlusion")[1]
    for j, rows in enumerate(found.target.tokens_of_words()):
        for i, columns in enumerate(found.source.tokens_of_words()):
            expected = sum(found.scores[row, column] for row in rows for column in columns) / len(rows)
            assert_close(found.words()[j, i], expected, 1e-12)


# ---- other models ----


def test_models_that_are_built_otherwise_are_refused_by_name():
    fields = {"d_model": 16, "d_kv": 8, "d_ff": 12, "num_layers": 1, "num_heads": 2}
    tokens = {name: value for name, value in sized(bpe_tokenizer()).items() if "token_id" in name}
    model = T5ForConditionalGeneration(T5Config(**fields, **tokens, vocab_size=len(bpe_tokenizer())))
    skip_without_cross_attention_of_t5(model)
    assert works_on(model) == ["attention", "occlusion", "random", "diagonal"]
    with pytest.raises(ValueError, match=r"`method`.*'alti'.*'t5'.*occlusion"):
        attribute(model, bpe_tokenizer(), SOURCES, TARGETS, "alti")
    with pytest.raises(ValueError, match=r"'contribution'.*`calibration`"):
        attribute(model, bpe_tokenizer(), SOURCES, TARGETS, "contribution")
    for method in works_on(model):
        assert len(found_by(model, method)) == len(SOURCES)
    decoder = GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=len(bpe_tokenizer())))
    with pytest.raises(ValueError, match="must be an encoder-decoder, got one of type 'gpt2'"):
        attribute(decoder, bpe_tokenizer(), SOURCES, TARGETS, "random")


@pytest.mark.parametrize("streams", [1, 2])
def test_discrete_transformers_have_attention_and_occlusion(streams):
    config = DiscreteTransformerConfig(**sized(bpe_tokenizer()), streams=streams)
    model = DiscreteTransformerForConditionalGeneration(config)
    assert {"attention", "occlusion"} <= set(works_on(model))
    assert "alti" not in works_on(model)
    for method in works_on(model):
        assert len(found_by(model, method)) == len(SOURCES)


def test_recurrent_models_have_attention_and_contributions():
    tokens = {name: value for name, value in sized(bpe_tokenizer()).items() if "token_id" in name}
    model = tiny_luong(**tokens, vocab_size=len(bpe_tokenizer()), calibration="gated", max_source_length=40)
    assert {"attention", "contribution", "occlusion"} <= set(works_on(model))
    for method in works_on(model):
        assert len(found_by(model, method)) == len(SOURCES)


# ---- what is refused ----


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("alty", {}, "`method` must be one of attention, contribution, .*, got 'alty'"),
        ("alti", {"layer": 0}, "`method` 'alti' has the options none: .*'layer'"),
        ("attention", {"heads": 0}, "has the options layer, head, calibrated: .*'heads'"),
        ("attention", {"layer": 2}, "`layer`.*from -2 to 1, or None, got 2"),
        ("attention", {"layer": 1.0}, "`layer`.*got 1.0"),
        ("attention", {"head": -1}, "`head`.*from 0 to 1, or None, got -1"),
        ("attention", {"calibrated": False}, "`calibrated`.*got False"),
    ],
)
def test_options_that_a_method_does_not_have_are_refused_at_once(method, options, message):
    with pytest.raises(ValueError, match=message):
        attribute(model_of("marian stock"), bpe_tokenizer(), SOURCES, TARGETS, method, **options)


def test_a_tokenizer_without_an_unknown_token_needs_another():
    tokenizer = copy.deepcopy(bpe_tokenizer())
    tokenizer.unk_token = None
    with pytest.raises(ValueError, match=r"'occlusion'.*unknown token"):
        next(attribute(model_of("marian stock"), tokenizer, SOURCES, TARGETS, "occlusion"))


def test_pairs_without_words_are_left_out():
    model = model_of("marian stock")
    (found,) = attribute(model, bpe_tokenizer(), ["", SOURCES[0]], [TARGETS[1], TARGETS[0]], "diagonal")
    assert found.index == 1
    assert list(attribute(model, bpe_tokenizer(), [], [], "alti")) == []
