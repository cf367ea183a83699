"""The reading of attention: values, padding, layers without masks, and the model as it was before.

The reference for a row of attention is a forward pass of one sentence alone, up to that step and no further.
"""

import pytest
import torch
from helpers import FAMILIES, assert_close, scatter
from peft import get_peft_model
from seq2seq_helpers import (
    KINDS,
    SOURCES,
    TARGETS,
    bpe_tokenizer,
    randomized,
    rows_by_prefixes,
    sized,
    skip_without_cross_attention_of_t5,
    text_model,
)
from transformers import (
    DataCollatorForSeq2Seq,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.inference.reading import decoder_size, read, readings_of_pairs
from hf_attncal.inference.word_attention import attention_report
from hf_attncal.metrics.reliability import attention_entropy, attention_is_reliable, contributions
from hf_attncal.report.observations import observe

DETAILS = ("uncalibrated", "masks", "nulls")


@pytest.fixture(params=KINDS)
def model(request, family):
    return text_model(family, request.param)


def pairs_of(model, kind: str = "attentions", **options) -> dict[int, list]:
    """Return the layers of one kind for each pair, without padding."""
    found = {}
    for pairs, reading in readings_of_pairs(model, bpe_tokenizer(), SOURCES, TARGETS, **options):
        for row, pair in enumerate(pairs):
            layers = getattr(reading, kind)
            found[pair.index] = [None if layer is None else reading.unpadded(layer, row) for layer in layers]
    assert sorted(found) == list(range(len(SOURCES)))
    return found


def outputs_of(model, source: str, target: str):
    """A direct pass over one sentence, with everything that it records."""
    labels = bpe_tokenizer()(text_target=[target], return_tensors="pt")["input_ids"]
    model.eval()
    with torch.no_grad():
        outputs = model(**bpe_tokenizer()([source], return_tensors="pt"), labels=labels, output_attention_details=True)
    model.train()
    return outputs


def batches_of(size: int) -> list[dict]:
    """Ready batches as a training run has them, with `decoder_input_ids` or without."""
    tokenizer = bpe_tokenizer()
    rows = [
        {"input_ids": tokenizer(source)["input_ids"], "labels": tokenizer(target)["input_ids"]}
        for source, target in zip(SOURCES, TARGETS, strict=True)
    ]
    collator = DataCollatorForSeq2Seq(tokenizer)
    return [collator(rows[start : start + size]) for start in range(0, len(rows), size)]


# ---- values ----


@pytest.mark.half("family", "model")
def test_attention_of_a_padded_batch_is_that_of_every_step_on_its_own(model):
    tokenizer = bpe_tokenizer()
    found = pairs_of(model, batch_size=3)
    for index, layers in found.items():
        source_ids, target_ids = (tokenizer(side[index])["input_ids"] for side in (SOURCES, TARGETS))
        expected = rows_by_prefixes(model, source_ids, [tokenizer.pad_token_id, *target_ids[:-1]])
        assert_close(torch.stack(layers), expected, 1e-10)
    assert model.config._attn_implementation == "sdpa"
    assert model.training


@pytest.mark.parametrize("attentions", [False, True])
def test_details_of_a_padded_batch_equal_those_of_single_pairs(family, attentions):
    """Also phi = |m a + (1 - m) mu - a|, where the weight of NULL is not part of the mean."""
    model = text_model(family, "ours")
    options = {"batch_size": 4, "attentions": attentions, "details": True}
    kinds = {kind: pairs_of(model, kind, **options) for kind in (*DETAILS[:2], "contributions", "attentions")}
    for index, pair in enumerate(zip(SOURCES, TARGETS, strict=True)):
        outputs = outputs_of(model, *pair)
        recorded = (outputs.uncalibrated_cross_attentions, outputs.calibration_masks, outputs.null_attentions)
        for layer, (a, m, null) in enumerate(zip(*recorded, strict=True)):
            mean = ((1 - null) / a.shape[-1])[..., None]
            phi = ((m * a + (1 - m) * mean) - a).abs()
            for kind, expected in (("uncalibrated", a), ("masks", m), ("contributions", phi)):
                assert_close(kinds[kind][index][layer], expected[0], 1e-10)
            assert (kinds["attentions"][index][layer] is not None) == attentions


def test_ready_batches_are_read_as_pairs_are(model):
    by_pair = pairs_of(model)
    index = 0
    for batch in batches_of(4):
        reading = read(model, batch)
        decoder_input_ids = model.prepare_decoder_input_ids_from_labels(batch["labels"])
        shifted = read(model, {**batch, "decoder_input_ids": decoder_input_ids})
        assert reading.masks == reading.nulls == (None,) * model.config.decoder_layers
        assert torch.equal(reading.target_mask, batch["labels"] != -100)
        for row in range(len(batch["labels"])):
            for layer, other, expected in zip(reading.attentions, shifted.attentions, by_pair[index], strict=True):
                assert torch.equal(layer, other)
                assert_close(reading.unpadded(layer, row), expected, 1e-10)
            index += 1
    assert index == len(SOURCES)


@pytest.mark.parametrize("kind", ["t5", "m2m100", "mbart"])
def test_other_encoder_decoders(kind):
    """The library's own way of making decoder inputs from labels decides which step has which token as its output."""
    tokenizer = bpe_tokenizer()
    fields = sized(tokenizer)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 12, "num_layers": 2, "num_heads": 2, "dropout_rate": 0.0}
    sizes |= {"num_decoder_layers": 3}
    tokens = {name: value for name, value in fields.items() if "token_id" in name} | {"vocab_size": len(tokenizer)}
    model = {
        "t5": lambda: T5ForConditionalGeneration(T5Config(**sizes, **tokens)),
        "m2m100": lambda: M2M100ForConditionalGeneration(M2M100Config(**fields)),
        "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**fields)),
    }[kind]()
    scatter(model.double().eval(), 0.2)
    model.set_attn_implementation("eager")
    if kind == "t5":
        skip_without_cross_attention_of_t5(model)
    found = pairs_of(model)
    for index, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        labels = tokenizer(target, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            outputs = model(**tokenizer(source, return_tensors="pt"), labels=labels, output_attentions=True)
        expected = torch.stack([layer[0] for layer in outputs.cross_attentions])
        assert_close(torch.stack(found[index]), expected, 1e-10)
    assert decoder_size(model.config) == tuple(expected.shape[:2])
    assert not model.training


@pytest.mark.parametrize("kind", KINDS)
def test_layers_without_masks_have_none(family, kind):
    """An adapter in one of three layers, of a stock model or of ours; the others are read like any stock model's."""
    config, made = FAMILIES[family][2:] if kind == "ours" else FAMILIES[family][:2]
    torch.manual_seed(3)
    stock = randomized(made(config(**sized(bpe_tokenizer()))).double())
    settings = AttentionCalibrationConfig(calibration="gated", leaky=True, layers=[1], task_type="SEQ_2_SEQ_LM")
    model = get_peft_model(stock, settings).get_base_model()
    for batch in batches_of(4):
        reading = read(model, batch, details=True)
        assert all(layer is not None for layer in reading.attentions)
        for kind in (*DETAILS, "contributions"):
            layers = getattr(reading, kind)
            assert [layer is not None for layer in layers] == [False, True, False]
        a, m, null = (getattr(reading, kind)[1] for kind in DETAILS)
        assert_close(reading.contributions[1], contributions(a, m, reading.source_mask, null))


def test_a_stock_model_has_no_details(family):
    reading = read(text_model(family, "stock"), next(iter(batches_of(4))), details=True)
    assert reading.uncalibrated == reading.masks == reading.nulls == (None,) * 3
    with pytest.raises(ValueError, match=r"`calibration`.*got one without"):
        _ = reading.contributions


# ---- pairs ----


def test_pairs_without_words_are_left_out(model):
    sources, targets = [SOURCES[0], "", " \t", SOURCES[1]], ["", TARGETS[0], "", TARGETS[1]]
    ((pairs, reading),) = readings_of_pairs(model, bpe_tokenizer(), sources, targets)
    assert [pair.index for pair in pairs] == [3]
    assert pairs[0].source.words == len(SOURCES[1].split())
    assert len(reading.source_mask) == 1
    assert list(readings_of_pairs(model, bpe_tokenizer(), [], [])) == []


# ---- the model as it was ----


@pytest.mark.parametrize("training", [False, True])
def test_the_model_is_as_before_whatever_happens(model, monkeypatch, training):
    def as_before() -> bool:
        return model.training == training and model.config._attn_implementation == "sdpa"

    model.train(training)
    read(model, next(iter(batches_of(3))))
    assert as_before()
    monkeypatch.setattr(type(model.base_model), "forward", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        read(model, next(iter(batches_of(3))))
    assert as_before()
    model.train()


def test_reading_keeps_no_graph(model):
    reading = read(model, next(iter(batches_of(3))))
    assert not any(layer.requires_grad for layer in reading.attentions)


# ---- the report ----


def test_the_report_is_the_mean_over_real_steps(family):
    model = text_model(family, "ours")
    found = attention_report(model, batches_of(4))
    alone = attention_report(model, batches_of(1))
    assert found["layers"] == alone["layers"] == [0, 1, 2]
    passes = [outputs_of(model, *pair) for pair in zip(SOURCES, TARGETS, strict=True)]
    for layer in range(3):
        levels, entropies, masks, steps = 0.0, 0.0, 0.0, 0
        for outputs in passes:
            a, m = outputs.uncalibrated_cross_attentions[layer], outputs.calibration_masks[layer]
            number = a.shape[2]
            phi = contributions(a, m, null_attention=outputs.null_attentions[layer])
            levels += float(attention_is_reliable(a, phi).sum())
            entropies += float(attention_entropy(a).mean()) * number
            masks += float(m.mean()) * number
            steps += number
        for name, total in (("reliability_level", levels), ("entropy", entropies), ("mask_mean", masks)):
            assert found[name][layer] == pytest.approx(total / steps, abs=1e-9)
            assert alone[name][layer] == pytest.approx(total / steps, abs=1e-9)
        # As `observe` has them, which is compared with loops.
        observed = observe(model, bpe_tokenizer(), SOURCES, TARGETS)
        for name in ("mass", "attended_mask", "divergence", "divergence_normalized", "gate"):
            assert found[name][layer] == pytest.approx(observed.mean(name, layer), abs=1e-9)
            assert found["by_head"][name][layer] == pytest.approx(observed.by_head[name][layer].tolist(), abs=1e-9)


def test_a_report_needs_masks_and_steps(family):
    with pytest.raises(ValueError, match=r"`calibration`.*got one without"):
        attention_report(text_model(family, "stock"), batches_of(3))
    with pytest.raises(ValueError, match=r"target step.*none"):
        attention_report(text_model(family, "ours"), [])
