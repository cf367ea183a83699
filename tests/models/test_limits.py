"""A size of 0 or below is refused by its name: every size of every family, and of the stock models that are loaded."""

import itertools
import json
import math
import re

import pytest
import transformers
from adapter_helpers import BACKBONES, save_base
from huggingface_hub.errors import StrictDataclassError
from transformers import BertConfig, BertModel

from hf_attncal.commands import main
from hf_attncal.families import FAMILIES
from hf_attncal.inference.loading import load_config
from hf_attncal.models.limits import LIMITS, NUMBER_RULES

SIZES = [
    (family, name)
    for family, row in FAMILIES.items()
    for name in LIMITS
    if name in row.config_class.__dataclass_fields__ and name not in row.config_class.attribute_map
]


# Values that break each rule, by its words.
BROKEN = {
    ">= 0 and finite": (-0.1, math.inf, math.nan),
    "> 0 and finite": (0, -1, math.inf, math.nan),
    ">= 0 and at most 1e4": (-0.02, 1.1e4, math.nan),
    ">= 0 and below 1e6": (-0.1, 1e6, math.nan),
    "in [0, 1]": (-0.1, 1.1, math.nan),
    "in [0, 1)": (-0.1, 1.0, math.nan),
    "in (0, 1)": (0, 1.0, math.nan),
    ">= 1e-6 and finite": (1e-7, math.inf, math.nan),
    "from -1e4 to 1e4": (-1e5, 1e5, math.nan),
    "> 0 and at most 1e4": (0.0, 1e5, math.nan),
    "> 0 and at most 1": (0.0, 1.5, math.nan),
    "> 0 and below 1e6": (0, 1e6, math.nan),
}
NUMBERS = [
    (family, name, value)
    for family, row in FAMILIES.items()
    for name, (rule, _) in NUMBER_RULES.items()
    if name in row.config_class.__dataclass_fields__
    for value in BROKEN[rule]
]


@pytest.mark.parametrize(("family", "name", "value"), NUMBERS)
def test_a_number_that_breaks_its_rule_is_named(family, name, value):
    message = rf"`{name}` must be .*, got {re.escape(str(value))}"
    with pytest.raises(StrictDataclassError, match=message):
        FAMILIES[family].config_class(**{name: value})


@pytest.mark.parametrize(("family", "name"), SIZES)
def test_a_size_that_is_too_small_is_named(family, name):
    row = FAMILIES[family]
    least = LIMITS[name][0]
    # Marian takes 0 words of the target's language for its having no vocabulary of its own.
    value = -7 if name == "decoder_vocab_size" else least - 1
    message = f"`{name}` must be >= {least}, got {value}"
    with pytest.raises(StrictDataclassError, match=message):
        row.config_class(**{name: value})
    config = row.config_class()
    setattr(config, name, value)
    with pytest.raises(StrictDataclassError, match=message):
        row.model_class(config)


def test_every_size_of_a_family_is_in_the_table():
    """A whole number among the fields is a size, a token, or a choice with a check of its own."""
    others = {"chunk_size_feed_forward", "num_hidden_layers"}  # of transformers; the latter is another's alias
    others |= {"guided_head", "guided_layer", "copy_head", "copy_layer", "streams", "relative_positions", "num_labels"}
    for row in FAMILIES.values():
        config = row.config_class()
        numbers = {
            name
            for name, value in config.to_dict().items()
            if isinstance(value, int) and not isinstance(value, bool) and not name.endswith(("token_id", "_steps"))
        }
        floats = {name for name in numbers if "float" in str(row.config_class.__dataclass_fields__.get(name))}
        assert numbers - floats - others <= set(LIMITS), row.model_type


@pytest.mark.parametrize(
    ("backbone", "name"),
    [*zip(BACKBONES, itertools.cycle(["d_model", "decoder_attention_heads", "vocab_size", "encoder_layers"]))],
)
def test_a_stock_model_too(backbone, name, tmp_path, capfd):
    folder = save_base(tmp_path, backbone)
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: 0}))
    with pytest.raises(ValueError, match=rf"`{name}`.*1.*got 0"):
        load_config(folder)
    assert main(["translate", str(folder)]) != 0
    told = capfd.readouterr().err
    assert f"`{name}` must be >= 1, got 0" in told
    assert "bug" not in told


def saved_bert(folder):
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    BertModel(BertConfig(vocab_size=50, **sizes)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("num_hidden_layers", (90, 10**13)),
        ("hidden_size", (50_000, 10**9)),
        ("intermediate_size", (900_000, 10**9)),
        ("vocab_size", (4_000_000, 10**9)),
        ("max_position_embeddings", (4_000_000, 10**13)),
        ("type_vocab_size", (4_000_000, 10**13)),
        ("num_attention_heads", (100_000, "two")),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_anything_is_built(name, values, tmp_path, monkeypatch):
    folder = saved_bert(tmp_path / "encoder")
    assert load_config(folder).num_hidden_layers == 2
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", None)  # not even the configuration
    file = folder / "config.json"
    saved = json.loads(file.read_text())
    for value in values:
        file.write_text(json.dumps(saved | {name: value}))
        with pytest.raises(ValueError, match=rf"config.json.*`{name}`"):
            load_config(folder)
