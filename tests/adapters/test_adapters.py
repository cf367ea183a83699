"""Adapters: the matrix of backbones, settings and operations; what is refused."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from adapter_helpers import (
    BACKBONES,
    CALIBRATED,
    LEAKY,
    PAIRS,
    SETTINGS,
    adapted,
    adapter_parameters,
    load_base,
    logits,
    read_base,
    save_base,
    scatter_adapter,
)
from helpers import TINY, assert_close, assert_identical, largest_difference, tiny_model, tiny_stock_model
from peft import AutoPeftModelForSeq2SeqLM, LoraConfig, PeftModel, get_peft_model
from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForSeq2SeqLM,
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    MarianConfig,
    MarianMTModel,
    T5Config,
    T5ForConditionalGeneration,
)

from hf_attncal.adapters import (
    AttentionCalibrationConfig,
    adapter_layers,
    export_calibrated,
    save_adapter,
    set_null_mass,
)
from hf_attncal.adapters.checkpoints import restore_adapter
from hf_attncal.adapters.configuration import AdapterType
from hf_attncal.io.extras import ORIGIN_HINT, install_command


@pytest.fixture(scope="module")
def bases(tmp_path_factory) -> dict:
    """The folder of a tiny base model, by backbone."""
    root = tmp_path_factory.mktemp("bases")
    return {backbone: save_base(root, backbone) for backbone in BACKBONES}


def sources(batch: dict) -> dict:
    return {name: tensor for name, tensor in batch.items() if name != "labels"}


def beams(model, batch, **options) -> torch.Tensor:
    options = {"num_beams": 3, "max_new_tokens": 6, "min_new_tokens": 6, **options}
    return model.generate(**sources(batch), **options)


# ---- what a fresh adapter computes ----


@pytest.mark.parametrize(
    ("backbone", "settings"),
    [
        *[("marian", settings) for settings in CALIBRATED.values() if settings.get("renormalize", True)],
        *[(backbone, CALIBRATED["gated"]) for backbone in BACKBONES if backbone != "marian"],
    ],
    ids=str,
)
def test_a_fresh_calibration_is_the_base_model(bases, backbone, settings, batch):
    base = load_base(bases[backbone])
    expected = logits(base, batch)
    model = get_peft_model(base, AttentionCalibrationConfig(**settings)).eval()
    assert_close(logits(model, batch), expected, 1e-12)
    scatter_adapter(model)
    assert largest_difference(logits(model, batch), expected) > 1e-4  # it can compute something else


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_new_leaky_adapter_gives_null_almost_no_weight(bases, backbone, batch):
    base = read_base(bases[backbone])
    expected = logits(base, batch)
    model = get_peft_model(base, AttentionCalibrationConfig(calibration=None, leaky=True)).eval()
    with torch.no_grad():
        outputs = model(**batch, output_attention_details=True)
    assert len(outputs.null_attentions) == TINY["decoder_layers"]
    for null in outputs.null_attentions:
        assert null.min() > 0
        assert null.mean() < 0.03
    assert 0 < largest_difference(outputs.logits, expected) < 0.3


@pytest.mark.half("settings", "mass")
@pytest.mark.parametrize("settings", ["leaky", "gated, leaky", "annealed, leaky, layer 0"])
@pytest.mark.parametrize("mass", [0.02, 0.5])
def test_the_mass_of_null_can_be_set(bases, batch, settings, mass):
    model = adapted(bases["marian"], **SETTINGS[settings])
    labels = batch["labels"] if "labels" in batch else torch.tensor([[5, 6, 7, -100], [8, 9, 2, 2]])
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")} | {"labels": labels}
    model.train()
    layers = [layer for layer in adapter_layers(model) if layer.active_name is not None]
    layers[0].null.bias.data += 12  # so that later layers see another model while the first is measured
    for _ in range(3):  # the biases of lower layers change the scores of higher ones a little
        biases = set_null_mass(model, inputs, mass)
    assert model.training
    assert all(torch.equal(bias, layer.null.bias) for bias, layer in zip(biases, layers, strict=True))
    with torch.no_grad():
        nulls = model.eval()(**inputs, output_attention_details=True).null_attentions
    for null in nulls:
        means = null.transpose(0, 1)[:, labels != -100].mean(dim=1)
        assert (means / mass - 1).abs().max() < 0.05


def test_a_mass_that_no_bias_gives_changes_nothing(bases, batch):
    model = adapted(bases["marian"], calibration=None, leaky=True)
    before = [layer.null.bias.clone() for layer in adapter_layers(model)]
    adapter_layers(model)[0].get_base_layer().k_proj.weight.data.fill_(float("nan"))
    with pytest.raises(ValueError, match=r"NULL.*0\.1"):
        set_null_mass(model, {**batch, "labels": torch.tensor([[5, 6, 7], [8, 9, 2]])}, 0.1)
    assert all(map(torch.equal, before, (layer.null.bias for layer in adapter_layers(model))))


def test_the_mass_of_null_has_clear_errors(bases, batch):
    leaky = adapted(bases["marian"], calibration=None, leaky=True)
    inputs = {**batch, "labels": torch.full((2, 3), -100)}
    with pytest.raises(ValueError, match=r"`mass`.*0.*1.*got 0"):
        set_null_mass(leaky, inputs, 0)
    with pytest.raises(ValueError, match="at least one target step"):
        set_null_mass(leaky, inputs)
    with pytest.raises(ValueError, match="`leaky=True`"):
        set_null_mass(adapted(bases["marian"], calibration="fixed"), inputs)


def attention_by_hand(attention, layer, states, encoder_states, lengths) -> torch.Tensor:
    """One adapted cross-attention, one target step and one head at a time, from the formulas."""
    heads, width = attention.num_heads, attention.head_dim
    query, key, value = (
        project(source).unflatten(-1, (heads, width))
        for project, source in (
            (attention.q_proj, states),
            (attention.k_proj, encoder_states),
            (attention.v_proj, encoder_states),
        )
    )
    network, null = layer.attncal_mask_network["default"], layer.attncal_null["default"]
    w_query, w_key = network.query_weight, network.key_weight
    gate = layer.attncal_gate["default"]
    rows = torch.zeros_like(states)
    for b, t in itertools.product(range(states.shape[0]), range(states.shape[1])):
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            q = query[b, t, h]
            scores = [q @ null.key[h] / width**0.5 + null.bias[h]]
            scores += [q @ key[b, s, h] / width**0.5 for s in range(lengths[b])]
            weights = torch.stack(scores).exp()
            weights = weights / weights.sum()
            masks = [
                torch.sigmoid((w_query @ states[b, t])[part] @ (w_key @ encoder_states[b, s])[part] / width**0.5)
                for s in range(lengths[b])
            ]
            g = torch.sigmoid(gate.weight[h] @ q + gate.bias[h])
            fused = torch.stack([a * (g + (1 - g) * (1 - m).exp()) for a, m in zip(weights[1:], masks, strict=True)])
            fused = fused * weights[1:].sum() / fused.sum()
            output = weights[0] * null.value[h]
            for s in range(lengths[b]):
                output = output + fused[s] * value[b, s, h]
            rows[b, t, part] = output
    return attention.out_proj(rows)


@torch.no_grad()
def test_one_layer_by_hand(bases):
    """NULL with its bias, masks, the gate, renormalisation, padding."""
    model = adapted(bases["marian"], calibration="gated", leaky=True)
    attention = model.get_decoder().layers[1].encoder_attn
    states, encoder_states = torch.randn(2, 3, 8, dtype=torch.float64), torch.randn(2, 4, 8, dtype=torch.float64)
    lengths = (4, 2)
    real = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)[:, None, None]
    actual, _ = attention(states, encoder_states, attention_mask=real)
    expected = attention_by_hand(attention, adapter_layers(model)[1], states, encoder_states, lengths)
    assert_close(actual, expected, 1e-12)


# ---- disabling, switching, deleting, unloading ----


@pytest.mark.parametrize(("backbone", "settings"), PAIRS)
def test_disabled_is_the_base_model_to_the_bit(bases, backbone, settings, batch):
    base = load_base(bases[backbone])
    expected, tokens = logits(base, batch), beams(base, batch)
    model = adapted(bases[backbone], **settings)
    changed = logits(model, batch)
    assert largest_difference(changed, expected) > 1e-4
    with model.disable_adapter():
        assert_identical(logits(model, batch), expected)
        assert torch.equal(beams(model, batch), tokens)
    assert_identical(logits(model, batch), changed)


@pytest.mark.parametrize(("backbone", "settings"), PAIRS)
def test_switch_delete_unload(bases, backbone, settings, batch):
    base = load_base(bases[backbone])
    expected, names = logits(base, batch), set(base.state_dict())
    classes = [type(module) for module in base.modules()]
    model = get_peft_model(base, AttentionCalibrationConfig(**settings), adapter_name="one")
    model.add_adapter("two", AttentionCalibrationConfig(calibration=None, leaky=True, layers=[1]))
    scatter_adapter(model)
    model.eval()
    one = logits(model, batch)
    assert all(".one." in name for name, p in adapter_parameters(model).items() if p.requires_grad)
    model.set_adapter("two")
    two = logits(model, batch)
    assert all(".two." in name for name, p in model.named_parameters() if p.requires_grad)
    assert largest_difference(one, two) > 1e-3
    model.set_adapter("one")
    assert_identical(logits(model, batch), one)

    model.delete_adapter("one")
    assert_identical(logits(model, batch), two)
    assert not any(".one." in name for name in model.state_dict())
    unloaded = model.unload()
    assert unloaded is base
    assert_identical(logits(unloaded, batch), expected)
    assert set(unloaded.state_dict()) == names
    assert [type(module) for module in unloaded.modules()] == classes
    assert not hasattr(unloaded, "peft_config")
    assert not unloaded._forward_hooks
    assert not unloaded._forward_pre_hooks


def test_two_of_ours_at_once_are_refused(bases):
    gated = AttentionCalibrationConfig(calibration="gated")
    model = get_peft_model(load_base(bases["bart"]), gated, adapter_name="one")
    model.add_adapter("two", AttentionCalibrationConfig(calibration="fixed"))
    with pytest.raises(ValueError, match=r"at a time.*\['one', 'two'\]"):
        model.base_model.set_adapter(["one", "two"])


@pytest.mark.parametrize("merge", ["merge_and_unload", "merge_adapter"])
def test_merging_is_refused_and_names_the_export(bases, merge):
    model = adapted(bases["marian"], calibration="gated")
    with pytest.raises(NotImplementedError, match=r"cannot be merged.*export_calibrated"):
        getattr(model, merge)()


# ---- saving and loading ----


@pytest.mark.parametrize(("backbone", "settings"), PAIRS)
def test_saved_and_loaded(bases, backbone, settings, batch, tmp_path):
    """PEFT, AutoPeft and transformers load the same function; the file has only adapter weights."""
    model = adapted(bases[backbone], **settings)
    expected = logits(model, batch)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "adapter_model.safetensors")
    assert all(".attncal_" in name for name in stored)
    assert sum(t.numel() for t in stored.values() if t.is_floating_point()) == sum(
        p.numel() for p in adapter_parameters(model).values()
    )
    loaded = [
        PeftModel.from_pretrained(load_base(bases[backbone]), tmp_path),
        AutoPeftModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float64),
        AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float64),
    ]
    injected = load_base(bases[backbone])
    injected.load_adapter(str(tmp_path), adapter_name="mine")
    for other in (*loaded, injected):
        assert_identical(logits(other.eval(), batch), expected)
        assert not any(p.requires_grad for p in adapter_parameters(other).values())


def test_names_that_hide_each_other(bases, batch, tmp_path):
    """PEFT leaves keys with another adapter's name out: no such name may be in all keys."""
    model = get_peft_model(load_base(bases["marian"]), AttentionCalibrationConfig(), adapter_name="calibration")
    model.add_adapter("second", AttentionCalibrationConfig(calibration="gated"))
    scatter_adapter(model)
    model.save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(load_base(bases["marian"]), tmp_path / "second", adapter_name="second")
    loaded.load_adapter(tmp_path / "calibration", "calibration")
    for name in ("calibration", "second"):
        model.set_adapter(name)
        loaded.set_adapter(name)
        assert_identical(logits(loaded.eval(), batch), logits(model.eval(), batch))
    with pytest.raises(ValueError, match=r"name of a module.*'decoder'"):
        model.add_adapter("decoder", AttentionCalibrationConfig())
    assert "decoder" not in model.peft_config


def test_a_batch_of_several_adapters_is_refused(bases, batch):
    model = adapted(bases["marian"], calibration="gated")
    with pytest.raises(ValueError, match=r"`adapter_names`.*None"):
        model(**batch, adapter_names=["default", "__base__"])


def test_save_adapter_in_half_the_bytes(bases, batch, tmp_path):
    model = adapted(bases["marian"], calibration="annealed", annealing_steps=10)
    save_adapter(model, tmp_path / "half", dtype=torch.bfloat16)
    stored = load_file(tmp_path / "half" / "adapter_model.safetensors")
    assert {t.dtype for t in stored.values()} == {torch.bfloat16, torch.int64}
    loaded = PeftModel.from_pretrained(load_base(bases["marian"]), tmp_path / "half").eval()
    assert 0 < largest_difference(logits(loaded, batch), logits(model, batch)) < 0.01
    save_adapter(model, tmp_path / "whole")
    whole = PeftModel.from_pretrained(load_base(bases["marian"]), tmp_path / "whole").eval()
    assert_identical(logits(whole, batch), logits(model, batch))
    with pytest.raises(ValueError, match=r"`adapter_name`.*'default'.*got 'other'"):
        save_adapter(model, tmp_path, adapter_name="other")


@pytest.mark.parametrize("backbone", ["marian", "bart"])
@pytest.mark.parametrize("how", ["PEFT", "save_adapter", "transformers"])
def test_new_tokens_go_with_the_adapter(backbone, how, bases, batch, tmp_path):
    """Embeddings that the base model on disk does not have; of a model without new tokens there are none."""
    batch, base = {name: tensor.clone() for name, tensor in batch.items()}, load_base(bases[backbone])
    base.resize_token_embeddings(13)
    batch["input_ids"][0, 0], batch["labels"][0, 0] = 11, 12
    settings = AttentionCalibrationConfig(calibration="gated", leaky=True)
    if how == "transformers":
        base.add_adapter(settings, "ours")
        model = base.eval()
    else:
        model = get_peft_model(base, settings).eval()
    scatter_adapter(model)
    if how == "save_adapter":
        save_adapter(model, tmp_path)
    elif how == "PEFT":
        with pytest.warns(UserWarning, match="embedding layer has been resized"):
            model.save_pretrained(tmp_path)
    else:
        save_adapter(model, tmp_path, adapter_name="ours")
    same = load_base(bases[backbone])
    same.resize_token_embeddings(13)
    assert_identical(logits(PeftModel.from_pretrained(same, tmp_path).eval(), batch), logits(model, batch))
    if how == "transformers":
        with torch.no_grad():
            expected = logits(model, batch)
            model.get_input_embeddings().weight[11:] = 0
            assert not torch.equal(logits(model, batch), expected)
        restore_adapter(model, tmp_path, "ours")
        assert_identical(logits(model, batch), expected)
    with pytest.raises(
        ValueError, match=r"got \(13, 8\): the adapter has added .*`model.resize_token_embeddings\(13\)`"
    ):
        PeftModel.from_pretrained(load_base(bases[backbone]), tmp_path)
    save_adapter(adapted(bases[backbone], calibration="gated"), tmp_path / "as ever")
    assert all(".attncal_" in name for name in load_file(tmp_path / "as ever" / "adapter_model.safetensors"))


@pytest.mark.parametrize(
    ("settings", "dtype", "limit"),
    [
        ({"calibration": "gated", "leaky": True}, torch.float32, 13_000_000),
        ({"calibration": "gated", "leaky": True}, torch.bfloat16, 7_000_000),
        ({"calibration": "gated", "leaky": True, "mask_projection": "head"}, torch.float32, 2_000_000),
    ],
    ids=str,
)
def test_size_at_the_opus_mt_shape(settings, dtype, limit, tmp_path):
    """d_model 512 with 6 decoder layers; neither the vocabulary nor the encoder matters."""
    sizes = {"d_model": 512, "encoder_layers": 1, "decoder_layers": 6, "decoder_attention_heads": 8}
    model = get_peft_model(MarianMTModel(MarianConfig(**TINY | sizes)), AttentionCalibrationConfig(**settings))
    save_adapter(model, tmp_path, dtype=dtype)
    assert limit / 2 < (tmp_path / "adapter_model.safetensors").stat().st_size <= limit


def test_the_card_names_the_base_and_its_revision(bases, tmp_path):
    base = load_base(bases["marian"])
    base.config._commit_hash = "0123abc"
    model = get_peft_model(base, AttentionCalibrationConfig(calibration="gated", mask_penalty=0.2))
    for _ in range(2):  # saving again replaces the section
        model.save_pretrained(tmp_path)
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert card.count("## Attention-calibration adapter") == 1
    base = Path(bases["marian"])
    assert f"`{base.name}` (a folder that is not on the Hub; `marian`, d_model 8)" in card
    assert str(base.parent) not in card  # PEFT's part names it, too
    assert "Revision of the base model: 0123abc" in card
    assert "- `mask_penalty`: `0.2`" in card
    assert "import hf_attncal.adapters" in card
    assert json.loads((tmp_path / "adapter_config.json").read_text())["revision"] == "0123abc"


# ---- in transformers, and with a LoRA ----


def lora(**options) -> LoraConfig:
    return LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **options)


@pytest.mark.parametrize(("backbone", "settings"), PAIRS)
def test_together_with_a_lora(bases, backbone, settings, batch, tmp_path):
    """In either order: the same names, the same function, saved and loaded one by one; each can be switched off."""
    answers = []
    for order in (("lora", "cal"), ("cal", "lora")):
        model = load_base(bases[backbone])
        for name in order:
            config = lora() if name == "lora" else AttentionCalibrationConfig(**settings)
            model.add_adapter(config, adapter_name=name)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            for _, parameter in sorted(item for item in model.named_parameters() if "lora_" in item[0]):
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        scatter_adapter(model)
        model.set_adapter(["lora", "cal"])
        answers.append(logits(model.eval(), batch))
        for name in order:
            model.set_adapter(name)
            model.save_pretrained(tmp_path / name)
    assert_identical(answers[0], answers[1])
    stored = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    assert len(stored) == 2 * 2 * 6  # A and B of queries and values of the 6 attentions
    assert not any("attncal" in name for name in stored)

    loaded = load_base(bases[backbone])
    loaded.load_adapter(str(tmp_path / "cal"), adapter_name="cal")
    loaded.load_adapter(str(tmp_path / "lora"), adapter_name="lora")
    loaded.set_adapter(["lora", "cal"])
    assert_identical(logits(loaded.eval(), batch), answers[0])
    loaded.set_adapter("lora")
    only_lora = logits(loaded, batch)
    assert largest_difference(only_lora, answers[0]) > 1e-5  # a fixed calibration moves little
    loaded.delete_adapter("cal")
    assert_identical(logits(loaded, batch), only_lora)
    loaded.disable_adapters()
    assert_identical(logits(loaded, batch), logits(load_base(bases[backbone]), batch))


# ---- generation ----


# ---- outputs ----


def test_details_and_attentions(bases, batch):
    model = adapted(bases["bart"], calibration="gated", leaky=True)
    with torch.no_grad():
        outputs = model(**batch, output_attentions=True, output_attention_details=True)
        plain = model(**batch, output_attentions=True)
    assert len(outputs.cross_attentions) == len(plain.cross_attentions) == 2
    for layer in range(2):
        shape = outputs.cross_attentions[layer].shape
        assert outputs.uncalibrated_cross_attentions[layer].shape == outputs.calibration_masks[layer].shape == shape
        mass = outputs.cross_attentions[layer].sum(-1) + outputs.null_attentions[layer]
        assert_close(mass, torch.ones_like(mass), 1e-12)
        assert largest_difference(outputs.cross_attentions[layer], outputs.uncalibrated_cross_attentions[layer]) > 1e-4
    assert_identical(plain.logits, outputs.logits)
    with torch.no_grad():
        as_tuple = model(**batch, return_dict=False)
    assert isinstance(as_tuple, tuple)
    assert_identical(as_tuple[1], outputs.logits)


@pytest.mark.processor
@pytest.mark.parametrize("settings", [CALIBRATED["gated"], LEAKY["gated, leaky"]], ids=str)
def test_a_bfloat16_base_with_float32_adapter_weights(tmp_path, settings, batch):
    """PEFT keeps adapter weights in float32 over a low-precision base."""
    folder = save_base(tmp_path, "marian", torch.bfloat16)
    model = adapted(folder, **settings)
    assert {p.dtype for p in adapter_parameters(model).values()} == {torch.float32}
    outputs = logits(model, batch)
    assert outputs.dtype == torch.bfloat16
    wide = adapted(folder, **settings).float()
    assert largest_difference(outputs.float(), logits(wide, batch)) < 0.2
    model.train()(**batch).loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in adapter_parameters(model).values())


# ---- what is refused ----

TINY_T5 = T5Config(vocab_size=11, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)
TINY_BERT = BertConfig(vocab_size=11, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
TINY_GPT = GPT2Config(vocab_size=11, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=2)


@pytest.mark.parametrize(
    "make",
    [lambda: T5ForConditionalGeneration(TINY_T5), lambda: BertModel(TINY_BERT), lambda: GPT2LMHeadModel(TINY_GPT)],
    ids=["t5", "bert", "gpt2"],
)
def test_models_without_such_a_cross_attention(make):
    model = make()
    with pytest.raises(ValueError, match=rf"got {type(model).__name__} \(model_type"):
        get_peft_model(model, AttentionCalibrationConfig())


def test_a_calibrated_model_is_refused():
    for switches, said in [
        ({"calibration": "gated"}, "calibration='gated'"),
        ({"leaky": True}, "leaky=True"),
        ({"gumbel": True}, "gumbel=True"),
    ]:
        with pytest.raises(ValueError, match=rf"got.*'attncal_marian'.*`{said}`"):
            get_peft_model(tiny_model("marian", **switches), AttentionCalibrationConfig())


def test_a_plain_model_of_ours_is_the_stock_model(family, tmp_path, batch):
    """Outputs, gradients and beams are equal to the bit, and an adapter trained on one loads onto the other."""
    stock, ours = tiny_stock_model(family), tiny_model(family)
    ours.load_state_dict(stock.state_dict())
    models = [get_peft_model(model, AttentionCalibrationConfig(**SETTINGS["gated, leaky"])) for model in (stock, ours)]
    results = []
    for model in models:
        scatter_adapter(model)
        outputs = model.train()(**batch, output_attention_details=True)
        outputs.loss.backward()
        found = {name: outputs[name].detach() for name in ("loss", "mask_loss", "logits")}
        found |= {f"mask {i}": mask.detach() for i, mask in enumerate(outputs.calibration_masks)}
        found |= {name: p.grad for name, p in adapter_parameters(model).items()}
        results.append((found, beams(model.eval(), batch)))
        with model.disable_adapter():
            assert_identical(logits(model, batch), logits(tiny_stock_model(family).eval(), batch))
    assert results[0][0].keys() == results[1][0].keys()
    for name, tensor in results[0][0].items():
        assert_identical(results[1][0][name], tensor, name)
    assert torch.equal(results[0][1], results[1][1])
    assert_close(logits(export_calibrated(models[1]), batch), logits(models[0], batch), 1e-12)
    models[1].save_pretrained(tmp_path)
    loaded = PeftModel.from_pretrained(tiny_stock_model(family), tmp_path).eval()
    assert_identical(logits(loaded, batch), logits(models[0], batch))


@pytest.mark.parametrize("name", ["../x", "a/b", "/x", "..", ".", "a\\b", "a\0b", "v1.2"])
def test_a_path_as_the_name_of_an_adapter(bases, name, tmp_path):
    config = AttentionCalibrationConfig(calibration="gated")
    base = load_base(bases["marian"])
    for add in (
        lambda: get_peft_model(base, config, adapter_name=name),
        lambda: base.add_adapter(config, name),
        lambda: adapted(bases["marian"]).add_adapter(name, config),
    ):
        with pytest.raises(ValueError, match=r"`adapter_name`.*folder"):
            add()


def test_another_architecture_or_size(bases, tmp_path):
    adapted(bases["marian"], calibration="gated").save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"`model_type`.*'marian'.*got 'bart'"):
        PeftModel.from_pretrained(load_base(bases["bart"]), tmp_path / "adapter")
    wider = load_base(save_base(tmp_path, "marian", d_model=12))
    with pytest.raises(ValueError, match=r"`d_model`.*8.*got 12"):
        PeftModel.from_pretrained(wider, tmp_path / "adapter")
    with pytest.raises(ValueError, match=r"`d_model` 8, got 12"):
        wider.load_adapter(str(tmp_path / "adapter"))
    more_heads = load_base(save_base(tmp_path / "heads", "marian", decoder_attention_heads=4))
    with pytest.raises(ValueError, match=r"gate.default.bias`.*\(4,\).*got \(2,\)"):
        PeftModel.from_pretrained(more_heads, tmp_path / "adapter")


@pytest.mark.parametrize("damage", ["missing", "unexpected"])
def test_a_file_with_missing_or_unexpected_keys(bases, damage, tmp_path):
    adapted(bases["bart"], calibration="gated").save_pretrained(tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    stored = load_file(path)
    name = sorted(stored)[0]
    if damage == "missing":
        del stored[name]
    else:
        stored[name.replace("layers.0", "layers.9")] = stored[name].clone()
    save_file(stored, path)
    with pytest.raises(ValueError, match=rf"(?i){damage}: \['base_model.model.model.decoder"):
        PeftModel.from_pretrained(load_base(bases["bart"]), tmp_path)


def test_a_refused_adapter_does_not_change_the_model(bases, batch):
    base = load_base(bases["marian"])
    expected = logits(base, batch)
    with pytest.raises(ValueError, match=r"`layers`.*0 to 1.*got \[0, 5\]"):
        get_peft_model(base, AttentionCalibrationConfig(calibration="gated", layers=[0, 5]))
    assert not adapter_layers(base)
    assert_identical(logits(base, batch), expected)
    model = get_peft_model(base, AttentionCalibrationConfig(calibration="gated"))
    with pytest.raises(ValueError, match=r"`layers`.*0 to 1.*got \[5\]"):
        model.add_adapter("other", AttentionCalibrationConfig(calibration="gated", layers=[5]))
    assert list(model.peft_config) == ["default"]
    model.add_adapter("other", AttentionCalibrationConfig(calibration="gated"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"calibration": None}, r"are all off.*Set `calibration`"),
        ({"calibration": "gate"}, r"`calibration` must be `None` or one of .*got 'gate'"),
        ({"mask_inputs": "both"}, r"`mask_inputs` must be one of .*got 'both'"),
        ({"mask_projection": "both"}, r"`mask_projection` must be one of .*got 'both'"),
        ({"layers": []}, r"`layers` must be .* at least one, got \[\]"),
        ({"layers": [0, 0]}, r"`layers` must be .*different integers.*got \[0, 0\]"),
        ({"layers": [-1]}, r"`layers` must be .*>= 0.*got \[-1\]"),
        ({"leaky": "no"}, "`leaky` must be True or False, got 'no'"),
        ({"calibration_weight": "0.1"}, "`calibration_weight` must be a number, got '0.1'"),
        ({"layers": 3}, "`layers` must be `None` or a list of integers, got 3"),
        ({"null_bias": None}, "`null_bias` must be a number, got None"),
    ],
)
def test_wrong_settings_are_named(values, message):
    with pytest.raises(ValueError, match=message):
        AttentionCalibrationConfig(**values)


def test_without_the_package_the_card_names_it_as_a_requirement(bases, monkeypatch, tmp_path):
    """PEFT without this package can only print the value of our type, which therefore is the message."""
    adapted(bases["marian"], calibration="gated").save_pretrained(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"] == "ATTNCAL"
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert all(
        words in card for words in (f"{install_command()}  # {ORIGIN_HINT}", "import hf_attncal.adapters", "KeyError")
    )
    base = load_base(bases["marian"])
    monkeypatch.delitem(PEFT_TYPE_TO_CONFIG_MAPPING, AdapterType.ATTNCAL)
    for load in (
        lambda: PeftModel.from_pretrained(base, tmp_path),
        lambda: AutoPeftModelForSeq2SeqLM.from_pretrained(tmp_path),
        lambda: base.load_adapter(str(tmp_path)),
    ):
        with pytest.raises(KeyError, match=r"^'ATTNCAL'$"):
            load()
