"""Models and adapters load by name, in Python and on the command line."""

import json
import os
import shutil

import huggingface_hub
import pytest
import torch
import transformers
from adapter_helpers import BACKBONES, adapted, save_base
from helpers import TINY, assert_identical, tiny_model
from peft import AutoPeftModelForSeq2SeqLM, LoraConfig, PromptTuningConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from hf_attncal import AttnCalMarianConfig, AttnCalMarianMTModel
from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.alignment.aligner import WordAligner
from hf_attncal.commands import main
from hf_attncal.data.tokenizer import train_bpe_tokenizer
from hf_attncal.inference.encoder_decoders import load_model
from hf_attncal.inference.loading import load_config, load_seq2seq
from hf_attncal.inference.opening import bf16_is_fast
from hf_attncal.inference.running import Running

TEXT = "the old house is a house"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A base model with its tokenizer, an adapter of ours without one, and a LoRA with one."""
    folder = tmp_path_factory.mktemp("loading")
    tokenizer = train_bpe_tokenizer([TEXT] * 3, vocab_size=40)
    special = {
        "pad_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "decoder_start_token_id": tokenizer.pad_token_id,
        "forced_eos_token_id": None,
    }
    base = save_base(folder, "marian", dtype=torch.float32, **special, vocab_size=len(tokenizer))
    tokenizer.save_pretrained(base)
    adapted(base, calibration="gated").save_pretrained(folder / "adapter")
    lora = get_peft_model(
        AutoModelForSeq2SeqLM.from_pretrained(base),
        LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM"),
    )
    lora.save_pretrained(folder / "lora")
    tokenizer.save_pretrained(folder / "lora")
    return {"base": base, "adapter": folder / "adapter", "lora": folder / "lora"}


@torch.no_grad()
def logits_of(model, tokenizer) -> torch.Tensor:
    batch = tokenizer([TEXT], return_tensors="pt")
    return model.eval()(**batch, decoder_input_ids=batch["input_ids"]).logits


@pytest.mark.parametrize("kind", ["adapter", "lora"])
def test_an_adapter_loads_as_its_base_model_with_the_adapter_in_it(folders, kind):
    model, tokenizer = load_seq2seq(folders[kind])
    assert type(model).__name__ == "MarianMTModel"
    assert load_config(folders[kind]).model_type == "marian"
    expected = AutoModelForSeq2SeqLM.from_pretrained(folders["base"])
    without = logits_of(expected, tokenizer)
    expected.load_adapter(str(folders[kind]))
    assert_identical(logits_of(model, tokenizer), logits_of(expected, tokenizer))
    assert not torch.equal(logits_of(model, tokenizer), without)


@pytest.mark.parametrize("kind", ["adapter", "lora"])
def test_an_adapter_brings_the_tokens_that_its_model_got(folders, kind, tmp_path):
    """Ours as a LoRA: the base model on disk does not have them."""
    base, tokenizer = (
        AutoModelForSeq2SeqLM.from_pretrained(folders["base"]),
        AutoTokenizer.from_pretrained(folders["base"]),
    )
    tokenizer.add_tokens(["<new>", "<newer>"])
    base.resize_token_embeddings(len(tokenizer))
    settings = {
        "adapter": AttentionCalibrationConfig(calibration="gated", renormalize=False),
        "lora": LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False, task_type="SEQ_2_SEQ_LM"),
    }
    model = get_peft_model(base, settings[kind])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded, found = load_seq2seq(tmp_path)
    batch = found(["the <new> house <newer>"], return_tensors="pt")
    assert int(batch["input_ids"].max()) == len(tokenizer) - 1
    batch["decoder_input_ids"] = batch["input_ids"]
    by_peft = AutoPeftModelForSeq2SeqLM.from_pretrained(tmp_path)
    with torch.no_grad():
        expected = model.eval()(**batch).logits
        for one in (loaded, by_peft):
            assert_identical(one.eval()(**batch).logits, expected)
    assert load_seq2seq(folders["base"])[0].config.vocab_size == len(tokenizer) - 2


def test_a_model_loads_as_before(folders):
    model, tokenizer = load_seq2seq(folders["base"])
    expected = AutoModelForSeq2SeqLM.from_pretrained(folders["base"])
    assert_identical(logits_of(model, tokenizer), logits_of(expected, tokenizer))
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(folders["base"]).get_vocab()


def test_a_prompt_is_refused(folders, tmp_path):
    config = PromptTuningConfig(task_type="SEQ_2_SEQ_LM", num_virtual_tokens=2)
    get_peft_model(AutoModelForSeq2SeqLM.from_pretrained(folders["base"]), config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"`peft_type`.*PROMPT_TUNING"):
        load_seq2seq(tmp_path)


def test_an_adapter_without_its_base_model_is_an_error(folders, tmp_path, capfd):
    shutil.copytree(folders["adapter"], tmp_path / "moved")
    path = tmp_path / "moved" / "adapter_config.json"
    config = json.loads(path.read_text())
    gone = str(tmp_path / "gone" / "base")
    for base, message in (
        (gone, "cannot be loaded: There is no folder"),
        (None, "must name a model"),
        ("", "must name a model"),
    ):
        path.write_text(json.dumps(config | {"base_model_name_or_path": base}))
        with pytest.raises(ValueError, match=message):
            load_seq2seq(tmp_path / "moved")
        assert main(["translate", str(tmp_path / "moved")]) != 0
        assert "cannot be loaded" in capfd.readouterr().err


# ---- what cannot be loaded ----


@pytest.fixture
def broken(folders, tmp_path):
    """A copy of the LoRA, with changes to its configuration: None takes a key away."""

    def copy(**changes):
        folder = shutil.copytree(folders["lora"], tmp_path / "broken", dirs_exist_ok=True)
        path = folder / "adapter_config.json"
        config = json.loads(path.read_text()) | changes
        path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
        return folder

    return copy


@pytest.mark.parametrize("kind", ["NO_SUCH_KIND", None])
def test_an_adapter_of_an_unknown_kind_is_refused(broken, kind):
    folder = broken(peft_type=kind)
    for load in (load_config, load_seq2seq):
        with pytest.raises(ValueError, match=rf"`peft_type`.*{folder} .* got {kind!r}.*Update peft"):
            load(folder)


def test_an_adapter_for_an_adapter_is_refused(broken, folders):
    with pytest.raises(ValueError, match=rf"{folders['adapter']}.*itself.*Merge"):
        load_seq2seq(broken(base_model_name_or_path=str(folders["adapter"])))


def test_a_broken_tokenizer_of_an_adapter_is_not_replaced(broken):
    folder = broken()
    for file, content in (("tokenizer_config.json", "{"), ("tokenizer.json", "{}")):
        (folder / file).write_text(content, encoding="utf-8")
        with pytest.raises(ValueError, match=f"{folder}.* cannot be (read|loaded)"):
            load_seq2seq(folder)
        (folder / file).unlink()
    load_seq2seq(folder)  # without one, that of the base model is right


@pytest.mark.parametrize("dtype", ["float99", torch.int8])
def test_a_dtype_that_is_none_is_refused(folders, dtype):
    with pytest.raises(ValueError, match=rf"`dtype`.*got {dtype!r}"):
        load_seq2seq(folders["base"], dtype=dtype)


# ---- files that are none ----


@pytest.fixture
def copied(folders, tmp_path):
    """A copy of the base model."""
    return shutil.copytree(folders["base"], tmp_path / "copied")


def change(path, **values) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", "{", "cannot be read: Expecting"),
        ("tokenizer_config.json", "[]", "must hold a JSON object, got '\\[\\]'"),
        ("generation_config.json", '{"a": NaN}', "NaN is not a number"),
        ("config.json", "[" * 100_000, "cannot be read: RecursionError"),
    ],
    ids=["cut", "list", "nan", "deep"],
)
def test_a_json_file_that_is_none_is_named(copied, file, content, message):
    (copied / file).write_text(content)
    with pytest.raises(ValueError, match=f"{copied / file} {message}|{copied / file}.*{message}"):
        load_seq2seq(copied)


@pytest.mark.parametrize(
    ("file", "make"),
    [
        ("config.json", os.mkfifo),
        ("model.safetensors", os.mkfifo),
        ("tokenizer.json", os.mkdir),
        ("config.json", lambda path: path.symlink_to("nowhere")),
    ],
)
def test_folders_and_pipes_are_not_read(copied, file, make):
    (copied / file).unlink()
    make(copied / file)
    with pytest.raises(ValueError, match=str(copied / file)):
        load_seq2seq(copied)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"torch_dtype": "float99"}, "`torch_dtype` must be a floating-point type"),
        ({"num_labels": 10**9}, "`num_labels` must be a whole number from 0 to 100000"),
        ({"encoder_layers": -1}, "`encoder_layers` must be >= 1, got -1"),
        ({"encoder_layers": 1}, "weights that its config.json has no place for, such as `model.encoder.layers.1"),
        ({"encoder_ffn_dim": 13}, "`model.encoder.layers.0.fc1.bias` must be \\(13,\\), got \\(12,\\)"),
        ({"decoder_start_token_id": 10**6}, "`decoder_start_token_id` must be a token, from 0 to"),
    ],
)
def test_a_configuration_that_cannot_be_is_named(copied, values, message):
    change(copied / "config.json", **values)
    with pytest.raises(ValueError, match=message):
        load_seq2seq(copied)


@pytest.mark.parametrize(("where", "nested"), [("folder", True), ("cache of the Hub", False)])
def test_a_kernel_of_the_hub_is_refused_wherever_the_model_is(copied, tmp_path, monkeypatch, where, nested):
    name, kernel = copied, {"attn_implementation": "someone/kernel"}
    change(copied / "config.json", **{"text_config": kernel} if nested else kernel)
    if where != "folder":
        name, cache = "someone/model", tmp_path / "hub" / "models--someone--model"
        shutil.copytree(copied, cache / "snapshots" / ("0" * 40))
        (cache / "refs").mkdir()
        (cache / "refs" / "main").write_text("0" * 40)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(transformers.utils.hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    for load in (load_config, load_seq2seq, WordAligner.from_pretrained):
        with pytest.raises(ValueError, match=r"`attn_implementation`.*got 'someone/kern"):
            load(name)


def test_the_tokenizer_of_another_model_is_refused(copied, folders, tmp_path):
    other = train_bpe_tokenizer(["and now for something completely different"] * 3, vocab_size=80)
    other.save_pretrained(copied)
    message = rf"the tokenizer in {copied} \(.*\) belongs to another model.*`vocab_size`"
    for load in (load_seq2seq, WordAligner.from_pretrained):
        with pytest.raises(ValueError, match=message):
            load(copied)
    adapter = shutil.copytree(folders["adapter"], tmp_path / "adapter")
    other.save_pretrained(adapter)
    with pytest.raises(ValueError, match=rf"tokenizer in {adapter}.*another model.*remove"):
        load_seq2seq(adapter)


def test_a_mask_token_without_an_embedding_is_none_of_it(copied):
    """bart-large-cnn has such a token; no text contains it."""
    tokenizer = AutoTokenizer.from_pretrained(copied)
    tokenizer.add_special_tokens({"mask_token": "<mask>"})
    tokenizer.save_pretrained(copied)
    load_seq2seq(copied)


def test_weights_that_are_no_floating_point_numbers_are_refused(copied):
    weights = load_file(copied / "model.safetensors")
    weights["model.encoder.layers.0.fc1.weight"] = weights["model.encoder.layers.0.fc1.weight"].to(torch.int64)
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"fc1.weight`.*got I64"):
        load_seq2seq(copied)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"target_modules": "("}, r"adapter_config.json or .* cannot be read: (error|PatternError): missing \)"),
        ({"megatron_config": {"a": 1}, "megatron_core": "evil"}, "`megatron_config` must be empty"),
        ({"use_rslora": "yes"}, "`use_rslora` must be true or false, got 'yes'"),
        ({"target_module": ["q_proj"]}, "`target_module` is no setting. Write `target_modules`"),
    ],
)
def test_a_hostile_adapter_is_refused(broken, values, message):
    with pytest.raises(ValueError, match=message):
        load_seq2seq(broken(**values))


@pytest.mark.parametrize("wrong", ["missing", "unexpected"])
def test_a_lora_of_other_weights_is_refused(broken, wrong):
    folder = broken()
    path = folder / "adapter_model.safetensors"
    weights = load_file(path)
    name = next(iter(weights))
    weights[name.replace("lora_", "lora_other_")] = weights[name].clone()
    if wrong == "missing":
        del weights[name]
    save_file(weights, path)
    part = name.rpartition(".lora_")[0]
    with pytest.raises(ValueError, match=rf"1 are {wrong} \['{part}"):
        load_seq2seq(folder)


def damaged(folder, to, file: str, name: str, value: float | None):
    """A copy of a folder in whose file one weight is missing, or has this value somewhere."""
    shutil.copytree(folder, to)
    weights = load_file(to / file)
    name = next(key for key in weights if key.endswith(name))
    if value is None:
        del weights[name]
    else:
        weights[name].view(-1)[-1] = value
    save_file(weights, to / file, metadata={"format": "pt"})
    return name


@pytest.mark.half("value", "kind")
@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("base", "fc1.weight"),
        ("ours", "mask_network.key_weight"),
        ("adapter", "mask_network.key_weight"),
        ("lora", "lora_B.weight"),
    ],
)
def test_damaged_weights_are_refused_by_name(folders, kind, name, value, tmp_path):
    folder = folders.get(kind, tmp_path / "ours")
    if kind == "ours":
        tokenizer = AutoTokenizer.from_pretrained(folders["base"])
        tokenizer.save_pretrained(folder)
        tiny_model("marian", torch.float32, calibration="gated", vocab_size=len(tokenizer)).save_pretrained(folder)
    file = "model.safetensors" if kind in ("base", "ours") else "adapter_model.safetensors"
    damaged(folder, tmp_path / "damaged", file, name, value)
    with pytest.raises(ValueError, match="lacks weights|[Mm]issing" if value is None else "not finite") as error:
        load_seq2seq(tmp_path / "damaged")
    assert name.partition(".")[0] in str(error.value)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_tied_and_computed_weights_are_not_missing(backbone, tmp_path):
    """Tables of sinusoids may also be missing, as in Pegasus' own checkpoints."""
    tokenizer = train_bpe_tokenizer([TEXT] * 3, vocab_size=40)
    folder = save_base(tmp_path, backbone, dtype=torch.float32, vocab_size=len(tokenizer))
    weights = load_file(folder / "model.safetensors")
    if backbone == "pegasus":
        weights = {name: weight for name, weight in weights.items() if "embed_positions" not in name}
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(folder)
    load_seq2seq(folder)


def _saved_with(folder, config: dict) -> None:
    AttnCalMarianMTModel(AttnCalMarianConfig(**TINY | {"vocab_size": 40})).save_pretrained(folder)
    train_bpe_tokenizer(["the old house"] * 3, vocab_size=40).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(config if "model_type" in config else json.loads(path.read_text()) | config))


def test_a_kernel_that_a_configuration_asks_for_is_not_fetched(tmp_path):
    """CVE-2026-4372: before 5.3, transformers took the name of a kernel of the Hub from there, and ran its code."""
    _saved_with(tmp_path, {"_attn_implementation_internal": "someone/kernel"})
    model, _ = load_seq2seq(tmp_path)
    assert model.config._attn_implementation in ("eager", "sdpa")


def test_a_configuration_does_not_trust_its_own_code(tmp_path):
    """CVE-2026-5241: before 5.5, the configuration of LightGlue set `trust_remote_code` for the model inside it."""
    inside = {
        "model_type": "evil",
        "auto_map": {"AutoConfig": "configuration_evil.Evil"},
        "_name_or_path": str(tmp_path),
    }
    _saved_with(tmp_path, {"model_type": "lightglue", "trust_remote_code": True, "keypoint_detector_config": inside})
    (tmp_path / "configuration_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    with pytest.raises(ValueError, match=r"config\.json.*read"):
        load_seq2seq(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_cuts_a_text_the_same_way_each_time(folders, tmp_path):
    """BPE dropout, which a tokenizer may have been saved with, is for training."""
    model = shutil.copytree(folders["base"], tmp_path / "model")
    values = json.loads((model / "tokenizer.json").read_text())
    values["model"]["dropout"] = 0.5
    (model / "tokenizer.json").write_text(json.dumps(values))
    cut = AutoTokenizer.from_pretrained(model)
    assert len({tuple(cut(TEXT).input_ids) for _ in range(20)}) > 1
    _, tokenizer = load_seq2seq(model)
    right = AutoTokenizer.from_pretrained(folders["base"])(TEXT).input_ids
    assert [tokenizer(TEXT).input_ids for _ in range(20)] == [right] * 20


@pytest.mark.processor
def test_bfloat16_on_a_cpu_that_emulates_it_is_warned_of(folders, monkeypatch, caplog):
    capability = torch.backends.cpu.get_cpu_capability()
    assert not (bf16_is_fast() and capability in ("DEFAULT", "AVX2"))
    for fast in (True, False):
        caplog.clear()
        monkeypatch.setattr("hf_attncal.inference.opening.bf16_is_fast", lambda fast=fast: fast)
        model, _ = load_model(str(folders["base"]), Running(dtype="bfloat16"))
        assert model.dtype == torch.bfloat16
        assert ("--dtype float32 is faster" in caplog.text) != fast
    caplog.clear()
    load_model(str(folders["base"]), Running(dtype="float32"))
    assert not caplog.text
