"""Observers: equal outputs with and without, their attention as in a slow loop, learned, saved, exported and read."""

import itertools
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import reference
import torch
from adapter_helpers import BACKBONES, load_base, save_base
from adapter_helpers import adapter_parameters as parameters_of
from helpers import (
    TINY,
    assert_close,
    assert_gradients_close,
    assert_identical,
    guided_batch,
    tiny_model,
    without_links,
)
from marian_helpers import tiny_ssru
from peft import LoraConfig, PeftModel, get_peft_model
from seq2seq_helpers import SOURCES, TARGETS, bpe_tokenizer, sized
from transformers import (
    AutoModelForSeq2SeqLM,
    GenerationMixin,
    MarianConfig,
    MarianMTModel,
    MT5Config,
    MT5ForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

from hf_attncal.adapters import AttentionCalibrationConfig, adapter_layers, export_calibrated, observer_learning
from hf_attncal.adapters.observer_learning import learn_observer, nearest_head
from hf_attncal.adapters.observing import generate_observed, observing_generate
from hf_attncal.alignment import WordAligner, seq2seq
from hf_attncal.alignment.seq2seq import Seq2SeqAttention, seq2seq_weights
from hf_attncal.inference.head_search import HeadPlace
from hf_attncal.inference.reading import observer_of, read, readings_of_pairs, token_pairs
from hf_attncal.inference.translation import translate_texts
from hf_attncal.models.functional import token_rows

OBSERVER = {"observe": True, "calibration": None, "guided": True, "leaky": True, "guided_layer": 1, "guided_head": 1}
DROPOUT = TINY | {"dropout": 0.1}
_T5 = {"vocab_size": 11, "d_model": 8, "d_kv": 3, "d_ff": 12, "num_layers": 2, "num_heads": 2}
_T5 |= {"decoder_start_token_id": 0}
_FRAMES = 12
_WHISPER = DROPOUT | {"max_source_positions": _FRAMES, "num_mel_bins": 4, "decoder_start_token_id": 2}
_WHISPER |= {"suppress_tokens": None, "begin_suppress_tokens": None}


def _made(config_class: type, model_class: type, sizes: dict):
    return model_class(config_class(**sizes))


BASES = {
    **{name: partial(_made, *classes, DROPOUT) for name, classes in BACKBONES.items()},
    "t5": partial(_made, T5Config, T5ForConditionalGeneration, _T5),
    "mt5": partial(_made, MT5Config, MT5ForConditionalGeneration, _T5),
    "whisper": partial(_made, WhisperConfig, WhisperForConditionalGeneration, _WHISPER),
    "attncal_marian": lambda: tiny_model("marian", torch.float32),
    "ssru": lambda: tiny_ssru().float(),
}


def base_and_batch(name: str, dtype: torch.dtype) -> tuple:
    """Return a random model of a family, and a batch for it with links."""
    torch.manual_seed(3)
    model = BASES[name]().to(dtype).eval()
    batch = guided_batch()
    if name == "whisper":
        batch = {"input_features": torch.randn(3, 4, 2 * _FRAMES, dtype=dtype), "labels": batch["labels"]}
        batch["links"] = (torch.rand(*batch["labels"].shape, _FRAMES) < 0.3).float()
    return model, batch


def outputs_of(model, batch) -> list[torch.Tensor]:
    """Return logits in evaluation and in training, and what greedy search, beams and sampling write."""
    source = {name: tensor for name, tensor in batch.items() if name not in ("labels", "links")}
    found = []
    for training in (False, True):
        model.train(training)
        torch.manual_seed(5)
        with torch.set_grad_enabled(training):  # torch has another kernel for T5's biases where they have a gradient
            outputs = model(**batch if training and observer_of(model) else without_links(batch))
        found.append(outputs.logits.detach())
    model.eval()
    generate = GenerationMixin.generate  # Whisper's own calls it with arguments that are deprecated
    inner = model.get_base_model() if isinstance(model, PeftModel) else model
    for options in ({}, {"use_cache": False}, {"num_beams": 3}, {"do_sample": True}):
        torch.manual_seed(6)
        found.append(generate(inner, **source, **options, max_new_tokens=6, min_new_tokens=3))
    return found


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_outputs_are_equal_to_the_bit(name, dtype):
    base, batch = base_and_batch(name, dtype)
    expected = outputs_of(base, batch)
    model = get_peft_model(base, AttentionCalibrationConfig(**OBSERVER))
    for parameter in parameters_of(model).values():
        torch.nn.init.normal_(parameter, std=0.5)
    assert all(map(torch.equal, outputs_of(model, batch), expected))
    outputs = model(**without_links(batch), output_attention_details=True)
    assert outputs.guided_attention.shape == batch["links"].shape
    total = outputs.guided_attention.sum(dim=-1) + outputs.guided_null
    assert_close(total, torch.ones_like(total), 1e-6)
    if "attention_mask" in batch:
        assert not outputs.guided_attention.transpose(1, 2)[batch["attention_mask"] == 0].any()
    assert all(map(torch.equal, outputs_of(model.unload(), batch), expected))


def slow_observer(model, batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention of the active observer by the loops of `reference.observed`."""
    layer = next(layer for layer in adapter_layers(model) if layer.active_name is not None)
    attention, observer = layer.get_base_layer(), layer.observer
    own, states = slice(layer.head_dim, 2 * layer.head_dim), {}

    def record(module, args, kwargs):
        states["decoder"] = (args[0] if args else kwargs["hidden_states"]).detach()
        states["encoder"] = kwargs["key_value_states"].detach()

    handle = attention.register_forward_pre_hook(record, with_kwargs=True)
    with torch.no_grad():
        model.eval()(**without_links(batch))
    handle.remove()
    base = {}
    for side in ("query", "key"):
        projection = getattr(layer, f"{side[0]}_proj")
        base[f"{side}_weight"] = projection.weight[own].detach()
        bias = projection.bias
        base[f"{side}_bias"] = torch.zeros(layer.head_dim).double() if bias is None else bias[own].detach()
    change = {name: getattr(observer, name) for name in ("query_up", "query_down", "key_up", "key_down")}
    change |= {"null_key": observer.null_key[0], "null_bias": observer.null_bias[0]}
    real = batch.get("attention_mask", torch.ones(states["encoder"].shape[:2])).bool()
    return reference.observed(states, base, change, layer.scaling, real)


@pytest.mark.parametrize("name", ["marian", "t5", "whisper"])
@pytest.mark.parametrize("shift", [False, True])
def test_attention_loss_and_gradients_are_those_of_the_loops(name, shift):
    base, batch = base_and_batch(name, torch.float64)
    model = get_peft_model(base, AttentionCalibrationConfig(**OBSERVER, guided_shift=shift, guided_rank=2))
    for parameter in parameters_of(model).values():
        torch.nn.init.normal_(parameter, std=0.5)
    learned = {n: p for n, p in model.named_parameters() if p.requires_grad}
    assert learned.keys() == parameters_of(model).keys()
    attention, null = slow_observer(model, batch)
    outputs = model.eval()(**batch, output_attention_details=True)
    assert_close(outputs.guided_attention, attention, 1e-12)
    assert_close(outputs.guided_null, null, 1e-12)
    loss = torch.zeros(()).double()
    for row, labels in enumerate(batch["labels"]):
        size = int((labels != -100).sum())
        rows = token_rows(torch.cat([attention[row], null[row, :, None]], dim=-1)[:size], shift)
        real = torch.ones(1, size).bool()
        loss = loss + size * reference.guided(rows[None, :, :-1], rows[None, :, -1], batch["links"][row, None], real)
    expected = loss / (batch["labels"] != -100).sum()
    assert_close(outputs.guided_loss, expected.detach(), 1e-12)
    gradients = dict(zip(learned, torch.autograd.grad(expected, list(learned.values())), strict=True))
    outputs.loss.backward()
    weight = 0.3  # `guided_weight`
    assert_gradients_close({n: p.grad / weight for n, p in learned.items()}, gradients, 1e-11)


@pytest.fixture(scope="module")
def marian(tmp_path_factory):
    return save_base(tmp_path_factory.mktemp("base"), "marian")


def copied_batches(seed: int, number: int, vocabulary: int = 11) -> list[dict[str, torch.Tensor]]:
    """Return batches of random sentences, each its own translation; the last word is linked to nothing."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for _ in range(number):
        words = torch.stack([3 + torch.randperm(vocabulary - 3, generator=generator)[:6] for _ in range(4)])
        ids = torch.cat([words, torch.full((4, 1), 2)], dim=1)
        links = torch.eye(7).expand(4, 7, 7).clone()
        links[:, 5:] = 0
        batches.append({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids, "links": links})
    return batches


def test_learned_from_states_without_a_change_of_the_model(tmp_path):
    folder = save_base(tmp_path, "marian", torch.float32, d_model=32)
    base = load_base(folder)
    text, other = copied_batches(1, 60), copied_batches(2, 4)
    expected, state = outputs_of(base, other[0]), {n: p.clone() for n, p in base.named_parameters()}
    model, lesson = learn_observer(base, text, other, epochs=20, learning_rate=1e-2, adapter_name="links")
    assert lesson.agreement > 0.5 > lesson.before + 0.2
    first = lesson.places[0]
    assert f"layer {first.layer}, head {first.head}" in str(lesson)
    assert all(map(torch.equal, outputs_of(model, other[0]), expected))
    for name, parameter in model.get_base_model().named_parameters():
        if ".attncal_" not in name:
            assert_identical(parameter, state[name.replace(".base_layer", "")])
    reading = read(model.get_base_model(), without_links(other[0]), attentions=False, observed=True)
    shift = observer_of(model).guided_shift
    assert shift == (first.shift and len(lesson.places) == 1)
    rows = token_rows(reading.observed[0], shift)
    assert (rows[:, :5].argmax(dim=-1) == torch.arange(5)).double().mean() > 0.4
    nulls = token_rows(reading.observed[1].unsqueeze(-1), shift).squeeze(-1)
    assert nulls[:, 5].mean() > nulls[:, :5].mean() + 0.2  # the word without a link

    second, _ = learn_observer(model, text, other, places=[HeadPlace(0, 0, False)], epochs=1, adapter_name="second")
    assert set(second.peft_config) == {"links", "second"}
    assert observer_of(second).guided_layer == 0
    second.set_adapter("links")
    second.save_pretrained(tmp_path)
    file = tmp_path / "links" / "adapter_model.safetensors"
    assert json.loads((tmp_path / "links" / "adapter_config.json").read_text())["observe"] is True
    assert file.stat().st_size < 12_000
    loaded = PeftModel.from_pretrained(load_base(folder), tmp_path / "links").eval()
    again = read(loaded.get_base_model(), without_links(other[0]), attentions=False, observed=True)
    assert_identical(again.observed[0], reading.observed[0])


def test_places_that_differ_by_noise_are_the_nearest(marian, monkeypatch):
    text, other = copied_batches(1, 2), copied_batches(2, 2)
    place, share = nearest_head(load_base(marian).float(), other)
    monkeypatch.setattr(observer_learning, "_TRIAL_RATE", 1e-9)
    _, lesson = learn_observer(load_base(marian).float(), text, other, epochs=1, learning_rate=1e-9)
    assert (lesson.places, lesson.before) == ((place,), share)
    for good, batches in ((1.0, 5), (-1.0, 3)):  # a good head learns from every second batch
        monkeypatch.setattr(observer_learning, "_GOOD", good)
        _, lesson = learn_observer(load_base(marian).float(), copied_batches(1, 5), other, places=[place])
        assert lesson.steps == 15 * batches


HEADS = [[0, 1, True], [1, 0, False], [1, 1, True]]


def test_several_heads_are_the_mean_of_observers_of_one(marian, tmp_path):
    batch, several = without_links(guided_batch()), OBSERVER | {"observed_heads": HEADS, "guided_shift": False}
    model = get_peft_model(load_base(marian), AttentionCalibrationConfig(**several)).eval()
    for parameter in parameters_of(model).values():
        torch.nn.init.normal_(parameter, std=0.5)
    outputs = model(**batch, output_attention_details=True)
    parts, found = {layer.layer_idx: layer.observer for layer in adapter_layers(model)}, []
    for layer, head, shift in HEADS:
        place = {"guided_layer": layer, "guided_head": head, "guided_shift": shift}
        single = get_peft_model(load_base(marian), AttentionCalibrationConfig(**OBSERVER | place)).eval()
        one = next(part.observer for part in adapter_layers(single) if part.observer is not None)
        number = parts[layer].heads.index((head, shift))
        for name, parameter in one.named_parameters():
            whole = getattr(parts[layer], name).data
            parameter.data = whole.unflatten(0, (len(parts[layer].heads), -1))[number].view_as(parameter).clone()
        details = single(**batch, output_attention_details=True)
        columns = torch.cat([details.guided_null.unsqueeze(-1), details.guided_attention], dim=-1)
        found.append(token_rows(columns, shift))
    expected = torch.stack(found).mean(dim=0)
    assert_close(outputs.guided_attention, expected[..., 1:], 1e-12)
    assert_close(outputs.guided_null, expected[..., 0], 1e-12)

    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(load_base(marian), tmp_path).eval()
    assert_identical(loaded(**batch, output_attention_details=True).guided_attention, outputs.guided_attention)
    full = export_calibrated(model)
    assert_close(full(**batch, output_attention_details=True).guided_attention, outputs.guided_attention, 1e-12)


SEVERAL = {"num_beams": 4, "num_return_sequences": 2}
# The search goes on after the texts that it returns have ended.
LONGER = {"num_beams": 3, "early_stopping": "never", "max_new_tokens": 12, "sequence_bias": [[[2], 4.0]]}


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"use_cache": False}, SEVERAL, LONGER], ids=str)
@pytest.mark.parametrize("heads", [None, HEADS], ids=["one", "three"])
@pytest.mark.parametrize("name", ["marian", "ssru"])
def test_observed_while_it_generates(name, heads, options):
    base, batch = base_and_batch(name, torch.float64)
    source = {name: batch[name] for name in ("input_ids", "attention_mask")}
    options = {"max_new_tokens": 6, "min_new_tokens": 3} | options
    expected = base.generate(**source, **options)
    assert options["max_new_tokens"] == 6 or expected.shape[1] < 8
    config = AttentionCalibrationConfig(**OBSERVER | {"observed_heads": heads, "guided_shift": heads is None})
    model = get_peft_model(base, config).eval()
    for parameter in parameters_of(model).values():
        torch.nn.init.normal_(parameter, std=0.5)
    output, weights, null = generate_observed(model, **source, **options)
    assert torch.equal(output.sequences, expected)
    labels = expected[:, 1:]
    texts = options.get("num_return_sequences", 1)
    batch = {name: tensor.repeat_interleave(texts, dim=0) for name, tensor in source.items()}
    reading = read(base, batch | {"labels": labels}, attentions=False, observed=True)
    for row, tokens in enumerate(labels.tolist()):
        end = tokens.index(base.config.pad_token_id) if base.config.pad_token_id in tokens else len(tokens)
        shift = heads is None
        assert_close(weights[row, : end - 1], token_rows(reading.observed[0][row], shift)[: end - 1], 1e-10)
        expected_null = token_rows(reading.observed[1][row, :, None], shift)[: end - 1, 0]
        assert_close(null[row, : end - 1], expected_null, 1e-10)
    assert not weights.transpose(1, 2)[batch["attention_mask"] == 0].any()
    padded = source["input_ids"].masked_fill(source["attention_mask"] == 0, base.generation_config.pad_token_id)
    with pytest.raises(ValueError, match="`attention_mask` must be given"):
        generate_observed(model, input_ids=padded)


def test_two_observers_in_different_layers_are_not_mixed(marian):
    model, batch = load_base(marian), without_links(guided_batch())
    for layer in (0, 1):
        model.add_adapter(AttentionCalibrationConfig(**OBSERVER | {"guided_layer": layer}), f"observer{layer}")
    model.set_adapter(["observer0", "observer1"])
    with pytest.raises(ValueError, match="only one observer can be active at a time"):
        model(**batch, output_attention_details=True)
    with pytest.raises(ValueError, match="no active observer"):
        generate_observed(load_base(marian), **batch)


def test_exported_with_the_code_it_needs(marian, tmp_path):
    model = get_peft_model(load_base(marian), AttentionCalibrationConfig(**OBSERVER)).eval()
    for parameter in parameters_of(model).values():
        torch.nn.init.normal_(parameter, std=0.5)
    batch = without_links(guided_batch())
    expected = model(**batch, output_attention_details=True)
    export_calibrated(model).save_pretrained(tmp_path)
    assert (tmp_path / "observing.py").is_file()
    full = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    outputs = full(**batch, output_attention_details=True)
    assert_close(outputs.logits, expected.logits, 1e-12)
    assert_close(outputs.guided_attention, expected.guided_attention, 1e-12)
    assert_close(outputs.guided_null, expected.guided_null, 1e-12)
    assert observer_of(full).guided_head == 1
    reading = read(full, batch, attentions=False, observed=True)
    assert_close(reading.observed[0], expected.guided_attention, 1e-12)


def test_masks_that_observe_learn_what_they_would_learn_in_place(marian):
    """With gamma at 1 the annealed calibration leaves the output as it is: the second pass is the same."""
    batch, found = without_links(guided_batch()), []
    for observe in (False, True):
        settings = {"calibration": "annealed", "annealing_steps": 1e12, "renormalize": True, "observe": observe}
        model = get_peft_model(load_base(marian), AttentionCalibrationConfig(**settings)).train()
        generator = torch.Generator().manual_seed(4)
        for parameter in parameters_of(model).values():
            parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        outputs = model(**batch, output_attention_details=True)
        outputs.loss.backward()
        grads = {n: p.grad for n, p in parameters_of(model).items() if p.grad is not None}
        found.append((outputs, grads))
    (in_place, expected), (beside, gradients) = found
    assert_identical(beside.logits, load_base(marian)(**batch).logits)
    assert_close(beside.mask_loss, in_place.mask_loss, 1e-9)
    assert_close(beside.mask_mean, in_place.mask_mean, 1e-12)
    assert len(beside.calibration_masks) == len(in_place.calibration_masks) == TINY["decoder_layers"]
    assert_gradients_close(gradients, expected, 1e-9)


def test_word_links_are_read_from_the_observer(tmp_path):
    tokenizer = bpe_tokenizer()
    torch.manual_seed(3)
    base = MarianMTModel(MarianConfig(**TINY | {"vocab_size": len(tokenizer)})).eval()
    pairs = ["the old house", "a green tree"], ["das alte Haus", "ein grüner Baum"]
    model = get_peft_model(base, AttentionCalibrationConfig(**OBSERVER, guided_shift=False)).get_base_model()
    settings = Seq2SeqAttention.default_of(model)
    assert (settings.weights, settings.shift, settings.layer, settings.mutual) == ("observer", False, 0, True)
    rows, stock = replace(settings, mutual=False), Seq2SeqAttention(layer=1, heads=(1,), shift=False)
    found, expected = (seq2seq_weights(model, tokenizer, *pairs, s) for s in (rows, stock))
    for weights, head in zip(found, expected, strict=True):  # a fresh observer is its head beside NULL
        assert_close(weights / weights.sum(dim=-1, keepdim=True), head / head.sum(dim=-1, keepdim=True), 1e-5)
    for weights, mutual in zip(found, seq2seq_weights(model, tokenizer, *pairs), strict=True):
        for t, s in itertools.product(*map(range, weights.shape)):
            share = weights[t, s] / sum(weights[other, s] for other in range(len(weights)))
            assert_close(mutual[t, s], (weights[t, s] * share).sqrt(), 1e-6)
    source = WordAligner(model, tokenizer).source
    source.prior = SimpleNamespace(cells=lambda pairs: [np.ones((len(s), len(t))) for s, t in pairs], share=0.5)
    words = [(one.split(), other.split()) for one, other in zip(*pairs, strict=True)]
    for (index,), weights in source.weights(words, 4, 4096):
        mutual = seq2seq_weights(model, tokenizer, *pairs)[index]
        assert_close(weights.forward[0], 0.7 * mutual + 0.3, 1e-6)


@pytest.mark.parametrize("beams", [1, 3])
def test_the_search_observes_what_a_pass_over_its_text_reads(beams, monkeypatch):
    tokenizer = bpe_tokenizer()
    torch.manual_seed(3)
    base = MarianMTModel(MarianConfig(**sized(tokenizer), init_std=0.3)).double().eval()
    base.generation_config.forced_eos_token_id = tokenizer.eos_token_id
    model = get_peft_model(base, AttentionCalibrationConfig(**OBSERVER)).get_base_model()
    aligner, options = WordAligner(model, tokenizer), {"num_beams": beams, "batch_size": 4, "max_new_tokens": 6}
    texts = translate_texts(
        model, tokenizer, SOURCES, generate=observing_generate(model, aligner.source.observed), **options
    )
    assert texts == translate_texts(model, tokenizer, SOURCES, **options)
    texts[-1] = TARGETS[-1]  # which the search has not written
    written = {text for _, text in aligner.source.observed}
    pairs = token_pairs(model, tokenizer, SOURCES, texts)
    again = [pair.index for pair in pairs if tuple(pair.target.ids) not in written]
    assert len(SOURCES) - 1 in again
    assert len(again) < len(pairs)
    read_pairs = []

    def counted(*args, **options):
        for batch, reading in readings_of_pairs(*args, **options):
            read_pairs.extend(pair.index for pair in batch)
            yield batch, reading

    monkeypatch.setattr(seq2seq, "readings_of_pairs", counted)
    words = [(source.split(), text.split()) for source, text in zip(SOURCES, texts, strict=True)]
    found, expected = (
        {index: weights.forward for (index,), weights in one.source.weights(words, 4, 4096)}
        for one in (aligner, WordAligner(model, tokenizer))
    )
    assert (sorted(read_pairs[: len(again)]), len(read_pairs)) == (again, len(again) + len(pairs))
    for index, weights in expected.items():
        assert_close(found[index], weights, 1e-10)
    assert not aligner.source.observed
    assert aligner.source.reads_observer_of(model)
    assert not WordAligner(model, tokenizer, Seq2SeqAttention(0)).source.reads_observer_of(model)
    assert not aligner.source.reads_observer_of(base.model)
    assert observing_generate(base.model.encoder, {}) is None


def test_the_python_of_the_page(tmp_path, monkeypatch):
    tokenizer = bpe_tokenizer()
    MarianMTModel(MarianConfig(**TINY | {"vocab_size": len(tokenizer)})).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "observers.md").read_text(encoding="utf-8")
    code, names = page.split("```python\n")[1].split("```")[0], {}
    exec(compile(code, "observers.md", "exec"), names)
    assert names["outputs"].guided_attention.shape[0] == 1
    assert names["outputs"].guided_null is not None


def test_beside_a_lora_and_replaced_by_an_adapter_in_place(marian):
    model, batch = load_base(marian), guided_batch()
    model.add_adapter(AttentionCalibrationConfig(**OBSERVER), "observer")
    model.add_adapter(LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False), "lora")
    model.set_adapter("lora")
    expected = model(**without_links(batch)).logits
    model.set_adapter(["observer", "lora"])
    outputs = model(**batch, output_attention_details=True)
    assert_identical(outputs.logits, expected)
    assert outputs.guided_attention is not None
    model.add_adapter(AttentionCalibrationConfig(calibration="gated"), "gated")
    model.set_adapter("gated")
    assert model(**without_links(batch), output_attention_details=True).guided_attention is None


# ---- what is refused ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output_gate": True}, "`observe` needs `output_gate=False`"),
        ({"guided": False, "calibration": "gated"}, "`guided=True` for `leaky`"),
        ({"observe": "yes"}, "`observe` must be True or False, got 'yes'"),
        ({"guided_rank": 5}, "`guided_rank` must be at most d_k, 4, got 5"),
        ({"observed_heads": HEADS}, "`observed_heads` needs `observe=True`, `guided=True` and `guided_shift=False`"),
        ({"observed_heads": [[0, 1]], "guided_shift": False}, r"must be different lists \[layer, head, shift\], got"),
        (
            {"observed_heads": [[0, 9, True]], "guided_shift": False},
            "`observed_heads` must be from 0 to 1 in this model, got 9",
        ),
    ],
    ids=str,
)
def test_settings(marian, settings, message):
    with pytest.raises(ValueError, match=message):
        get_peft_model(load_base(marian), AttentionCalibrationConfig(**OBSERVER | settings))


def test_the_gate_of_an_observer_would_not_learn():
    with pytest.raises(ValueError, match=r"`observe` needs another `calibration` than \"gated\".*Use \"fixed\""):
        AttentionCalibrationConfig(**OBSERVER | {"calibration": "gated"})


def test_several_texts_of_a_search_are_observed():
    """Each has the states of its own source, also if the number of beams is no multiple of theirs."""
    tokenizer = bpe_tokenizer()
    torch.manual_seed(3)
    base = MarianMTModel(MarianConfig(**sized(tokenizer), init_std=0.3)).double().eval()
    model = get_peft_model(base, AttentionCalibrationConfig(**OBSERVER)).get_base_model()
    inputs = dict(tokenizer(SOURCES[:3], return_tensors="pt", padding=True)) | {"max_new_tokens": 5}
    _, weights, _ = generate_observed(model, **inputs, num_beams=3, num_return_sequences=2)
    _, expected, _ = generate_observed(model, **inputs, num_beams=3, num_return_sequences=3)
    kept = expected.view(3, 3, *expected.shape[1:])[:, :2].flatten(0, 1)
    assert_close(weights, kept[:, : weights.shape[1]], 1e-12)


def test_t5_is_observed_only():
    model, _ = base_and_batch("t5", torch.float32)
    for settings in (
        {"calibration": "gated"},
        OBSERVER | {"calibration": "fixed"},
        {"guided": True, "calibration": None},
    ):
        with pytest.raises(ValueError, match=r"T5 and mT5 with `observe=True` and `calibration=None`"):
            get_peft_model(model, AttentionCalibrationConfig(**settings))


def test_text_without_links_and_models_without_observer(marian):
    batches = [batch | {"links": torch.zeros_like(batch["links"])} for batch in copied_batches(1, 1)]
    with pytest.raises(ValueError, match=r"`links` must link at least one token"):
        learn_observer(load_base(marian).float(), batches, batches)
    with pytest.raises(ValueError, match=r"needs a model or an active adapter with `observe`"):
        read(load_base(marian), without_links(guided_batch()), observed=True)
