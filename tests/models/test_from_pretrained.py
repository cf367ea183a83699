"""Loading of models: settings, missing weights, weights that are not finite, names, warnings."""

import json
import logging

import pytest
import torch
from helpers import FAMILIES, TINY, assert_identical, tiny_model, tiny_stock_model
from huggingface_hub.errors import StrictDataclassError
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForSeq2SeqLM
from transformers.utils import logging as transformers_logging

from hf_attncal import AttnCalMarianModel, MaskAlignConfig, MaskAlignModel

ALIGNER = {
    "vocab_size": 11,
    "d_model": 8,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "attention_heads": 2,
    "ffn_dim": 8,
}


@pytest.fixture
def stock(family, tmp_path):
    """The folder of a stock model."""
    tiny_stock_model(family, torch.float32).save_pretrained(tmp_path / "stock")
    return tmp_path / "stock"


@pytest.fixture
def aligner(tmp_path):
    MaskAlignModel(MaskAlignConfig(**ALIGNER)).save_pretrained(tmp_path / "aligner")
    return tmp_path / "aligner"


def change(folder, edit) -> None:
    """Let `edit` change the dictionary of the weights in a folder."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    edit(weights)
    save_file(weights, path, metadata={"format": "pt"})


@pytest.fixture
def said(monkeypatch):
    """Record the warnings and errors that transformers and our models log."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    loggers = transformers_logging.get_logger("transformers"), logging.getLogger("hf_attncal")
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_warning()  # the demo asks for less, in the whole process
    for logger in loggers:
        logger.addHandler(handler)
    monkeypatch.setattr(logging.Logger, "warning_once", logging.Logger.warning)
    yield records
    transformers_logging.set_verbosity(verbosity)
    for logger in loggers:
        logger.removeHandler(handler)


# ---- settings ----


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"calibration": "gate"}, "`calibration` must be .*got 'gate'"),
        ({"calibration": "fixed", "calibration_weight": -3.0}, "`calibration_weight` must be .*got -3.0"),
        ({"renormalize": True}, "`renormalize` needs `calibration`"),
        ({"encoder_layers": 10**9}, "`encoder_layers` must be at most"),
    ],
    ids=str,
)
def test_settings_given_in_loading_are_checked(family, stock, values, message):
    config_class, model_class = FAMILIES[family][2:]
    with pytest.raises(StrictDataclassError, match=message):
        model_class.from_pretrained(stock, **values)
    config = config_class.from_pretrained(stock)
    for name, value in values.items():
        setattr(config, name, value)
    with pytest.raises(StrictDataclassError, match=message):
        model_class(config)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_labels": 10**9}, "`num_labels` must be a whole number from 0 to 100000, got 1000000000"),
        ({"id2label": {n: "x" for n in range(100_001)}}, "`id2label` must be a table of at most 100000 names"),
    ],
    ids=["num_labels", "id2label"],
)
def test_labels_without_end_are_refused(values, message):
    for config_class in (MaskAlignConfig, *(family[2] for family in FAMILIES.values())):
        with pytest.raises(ValueError, match=message):
            config_class(**values)


def test_a_misspelt_setting_is_refused():
    with pytest.raises(ValueError, match=r"`symetrization`.*`symmetrization`"):
        MaskAlignConfig(symetrization="union")
    for _, _, config_class, _ in FAMILIES.values():
        with pytest.raises(ValueError, match=r"`calibraton`.*`calibration`"):
            config_class(calibraton="gated")
        config_class(something_else=1)


# ---- missing weights ----


MISSING = [
    "model.encoder.layers.0.fc1.weight",
    "model.decoder.layers.1.encoder_attn.q_proj.bias",
    "model.decoder.layers.1.encoder_attn.mask_network.query_weight",
    "model.decoder.layers.0.encoder_attn.gate.bias",
    "model.decoder.layers.0.encoder_attn.null.key",
]


@pytest.mark.half("family", "name")
@pytest.mark.parametrize("name", MISSING)
def test_a_missing_weight_is_refused(family, name, tmp_path):
    model_class = FAMILIES[family][3]
    tiny_model(family, torch.float32, calibration="gated", leaky=True).save_pretrained(tmp_path)
    change(tmp_path, lambda weights: weights.pop(name))
    for load in (model_class.from_pretrained, AutoModelForSeq2SeqLM.from_pretrained, AutoModel.from_pretrained):
        with pytest.raises(ValueError, match=rf"lacks weights.*{name.removeprefix('model.')}"):
            load(tmp_path)
    _, report = model_class.from_pretrained(tmp_path, output_loading_info=True)  # the caller decides
    assert report["missing_keys"] == {name}


def test_parts_switched_on_in_loading_are_new(family, stock, tmp_path):
    """A stock checkpoint has none of our parts, and one of ours has those of its own switches."""
    model_class = FAMILIES[family][3]
    model = model_class.from_pretrained(stock, calibration="fixed")
    model.save_pretrained(tmp_path / "fixed")
    grown = model_class.from_pretrained(tmp_path / "fixed", calibration="gated", leaky=True)
    for name, weight in model.state_dict().items():
        assert_identical(grown.state_dict()[name], weight, name)
    change(tmp_path / "fixed", lambda weights: weights.pop(MISSING[2]))
    with pytest.raises(ValueError, match=r"mask_network\.query_weight"):
        model_class.from_pretrained(tmp_path / "fixed", calibration="gated", leaky=True)


@pytest.mark.parametrize("tied", [True, False])
def test_a_bare_model_gets_a_head(family, tmp_path, tied):
    model = tiny_model(family, torch.float32, calibration="gated", tie_word_embeddings=tied)
    model.model.save_pretrained(tmp_path)
    loaded = FAMILIES[family][3].from_pretrained(tmp_path)
    for name, weight in model.model.state_dict().items():
        assert_identical(loaded.model.state_dict()[name], weight, name)
    model.save_pretrained(tmp_path / "head")
    if not tied:
        change(tmp_path / "head", lambda weights: weights.pop("lm_head.weight"))
        with pytest.raises(ValueError, match=r"lm_head\.weight"):
            FAMILIES[family][3].from_pretrained(tmp_path / "head")


def test_weights_that_the_caller_gives_are_his(family):
    config_class, model_class = FAMILIES[family][2:]
    assert model_class.from_pretrained(None, config=config_class(**TINY), state_dict={}).config.d_model == 8


def test_a_missing_weight_of_the_aligner_is_refused(aligner):
    name = "forward_direction.encoder_layers.0.ffn.fc1.weight"
    change(aligner, lambda weights: weights.pop(name))
    for load in (MaskAlignModel.from_pretrained, AutoModel.from_pretrained):
        with pytest.raises(ValueError, match=rf"lacks weights.*{name}"):
            load(aligner)


# ---- weights that are no numbers ----


@pytest.mark.half("family", "value", "dtype")
@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_weights_that_are_not_finite_are_refused(family, tmp_path, value, dtype):
    name = "model.decoder.layers.1.fc2.weight"
    tiny_stock_model(family, dtype).save_pretrained(tmp_path)
    change(tmp_path, lambda weights: weights[name][3].fill_(value))
    with pytest.raises(ValueError, match=rf"`{name}`.*not finite.*{dtype}"):
        FAMILIES[family][3].from_pretrained(tmp_path)


# ---- what is written and said ----


def test_a_stock_checkpoint_is_loaded_without_alarm(family, stock, said):
    model = FAMILIES[family][3].from_pretrained(stock)
    assert said == []
    assert model.config.model_type == f"attncal_{family}"


@pytest.mark.parametrize("bare", [False, True])
def test_both_auto_classes_are_named(family, bare, tmp_path):
    model = tiny_model(family, torch.float32)
    (model.model if bare else model).save_pretrained(tmp_path)
    auto_map = json.loads((tmp_path / "config.json").read_text())["auto_map"]
    module, language_model = f"modeling_attncal_{family}", FAMILIES[family][3].__name__
    assert auto_map == {
        "AutoConfig": f"configuration_attncal.{FAMILIES[family][2].__name__}",
        "AutoModel": f"{module}.AttnCal{family.title()}Model",
        "AutoModelForSeq2SeqLM": f"{module}.{language_model}",
    }


def test_a_class_of_somebody_elses_is_not_named(tmp_path):
    """Its module does not have the other class."""

    class Mine(AttnCalMarianModel):
        _auto_class = None

    model = Mine(FAMILIES["marian"][2](**TINY))
    model.save_pretrained(tmp_path)
    assert "AutoModelForSeq2SeqLM" not in json.loads((tmp_path / "config.json").read_text()).get("auto_map", {})


def test_generation_refuses_details_that_it_would_drop(family, batch):
    model = tiny_model(family, calibration="gated").eval()
    with pytest.raises(ValueError, match=r"`output_attention_details`.*`generate`"):
        model.generate(batch["input_ids"], output_attention_details=True, max_new_tokens=2)
    model.generate(batch["input_ids"], output_attention_details=False, max_new_tokens=2)
