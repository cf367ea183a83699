"""A size of 0 or below is refused by its name: every size of every family, and of the stock models that are loaded."""

import json

import pytest
from adapter_helpers import BACKBONES, save_base
from huggingface_hub.errors import StrictDataclassError

from hf_attncal.commands import main
from hf_attncal.families import FAMILIES
from hf_attncal.inference.loading import load_config
from hf_attncal.models.limits import LIMITS

SIZES = [
    (family, name)
    for family, row in FAMILIES.items()
    for name in LIMITS
    if hasattr(row.config_class(), name) and name not in row.config_class.attribute_map
]


@pytest.mark.parametrize(("family", "name"), SIZES)
def test_a_size_that_is_too_small_is_named(family, name):
    row = FAMILIES[family]
    least = LIMITS[name][0]
    # Marian takes 0 words of the target's language for its having no vocabulary of its own.
    for value in (-7,) if name == "decoder_vocab_size" else (least - 1, -7):
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


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("name", ["d_model", "decoder_attention_heads", "vocab_size", "encoder_layers"])
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
