"""Configurations: defaults, round trips, and one clear error for each value that makes no sense."""

import re

import pytest
from helpers import FAMILIES, TINY, tiny_model
from huggingface_hub.errors import StrictDataclassError

BAD_VALUES = [
    ({"calibration": "anneal"}, "`calibration` must be `None` or one of .*'annealed'.*, got 'anneal'"),
    ({"mask_projection": "layer"}, "`mask_projection` must be one of .*'head'.*, got 'layer'"),
    ({"mask_inputs": "both"}, "`mask_inputs` must be one of .*'trained'.*, got 'both'"),
    *[
        ({name: 10**9}, f"`{name}` must be at most [0-9]+, got 1000000000")
        for name in ("encoder_layers", "vocab_size")
    ],
    ({"d_model": 90_000, "encoder_layers": 900}, r"must have at most 1e\+11 parameters, got .*`d_model` 90000"),
    ({"gumbel_straight_through": True}, "`gumbel_straight_through` needs `gumbel=True`"),
    ({"renormalize": True}, "`renormalize` needs `calibration` to be one of .*, got None"),
    ({"null_token_id": -100}, "`null_token_id` must be a token .*got -100"),
    ({"null_token_id": 7, "eos_token_id": 7}, "`null_token_id` must be .* other than padding and the end .*, got 7"),
    ({"null_token_id": 7, "pad_token_id": 7}, "`null_token_id` must be .* other than padding and the end .*, got 7"),
    ({"copy": True, "copy_layer": 2, "decoder_layers": 2}, "`copy_layer` must be from 0 to 1 in this model, got 2"),
    ({"copy": True, "copy_head": 4, "decoder_attention_heads": 4}, "`copy_head` must be from 0 to 3 .*, got 4"),
    ({"copy": True, "decoder_layerdrop": 0.1}, "`copy` needs `decoder_layerdrop` 0, got 0.1"),
    ({"copy": True, "max_copied_tokens": 3}, "`max_copied_tokens` needs `unk_token_id`, got None"),
    ({"copy": True, "max_copied_tokens": -1, "unk_token_id": 3}, "`max_copied_tokens` must be >= 0, got -1"),
    ({"max_copied_tokens": 3, "unk_token_id": 3}, "`max_copied_tokens` needs `copy=True`, got 3"),
]
BAD_TYPES = [
    ("calibration", 3),
    ("calibration_weight", "0.1"),
    ("mask_penalty", None),
    ("leaky", "yes"),
    ("label_smoothing", [0.1]),
    ("null_bias", True),
    ("null_token_id", "<null>"),
    ("max_copied_tokens", 2.0),
]
EVERY_FIELD = {
    "calibration": "fixed",
    "calibration_weight": 0.2,
    "annealing_steps": 70,
    "mask_projection": "head",
    "mask_inputs": "trained",
    "mask_penalty": 1,
    "mask_cost": 0.2,
    "renormalize": True,
    "leaky": False,
    "null_key_std": 0.5,
    "null_bias": -3.5,
    "gumbel": True,
    "gumbel_temperature": 2,
    "gumbel_straight_through": True,
    "output_gate": True,
    "label_smoothing": 0.3,
    "uam": True,
    "uam_scale": 4,
    "null_token_id": 9,
    "copy": True,
    "copy_layer": 0,
    "copy_head": 1,
    "max_copied_tokens": 5,
    "unk_token_id": 3,
    "guided": False,
    "guided_layer": 1,
    "guided_head": 1,
    "guided_weight": 2,
    "guided_shift": False,
    "observe": False,
    "observed_heads": [[0, 1, True]],
    "guided_rank": 2,
}


@pytest.fixture
def config_class(family):
    return FAMILIES[family][2]


@pytest.mark.parametrize(("values", "message"), BAD_VALUES, ids=[str(values) for values, _ in BAD_VALUES])
def test_a_bad_value_is_an_error_with_its_reason(config_class, values, message):
    with pytest.raises(StrictDataclassError, match=message):
        config_class(**values)


@pytest.mark.parametrize(("field", "value"), BAD_TYPES)
def test_a_bad_type_is_an_error_that_names_the_field(config_class, field, value):
    with pytest.raises(StrictDataclassError, match=f"(?s)'{field}'.*{re.escape(repr(value))}"):
        config_class(**{field: value})


def test_every_field_survives_saving(config_class, tmp_path):
    config = config_class(**TINY | EVERY_FIELD)
    config.save_pretrained(tmp_path)
    loaded = config_class.from_pretrained(tmp_path)
    for name, value in EVERY_FIELD.items():
        assert getattr(loaded, name) == value, name
    assert loaded.to_dict() == config.to_dict()


def test_every_field_of_ours_is_in_this_file(family):
    stock_class, _, config_class, _ = FAMILIES[family]
    ours = config_class().to_dict().keys() - stock_class().to_dict().keys()
    assert ours == EVERY_FIELD.keys()


def test_another_architecture_is_an_error(family):
    other = "bart" if family == "marian" else "marian"
    stock_class, _, config_class, _ = FAMILIES[other]
    for wrong in (stock_class(), config_class()):
        with pytest.raises((ValueError, StrictDataclassError), match=rf"`model_type`.*'attncal_{family}'.*{other}"):
            FAMILIES[family][2].from_dict(wrong.to_dict())


def test_the_parameters_are_those_of_the_switches(family):
    """One switch, one kind of parameter; all off, none."""

    def added(**switches) -> set[str]:
        names = {
            name.split("encoder_attn.")[1]
            for name in tiny_model(family, **switches).state_dict()
            if "encoder_attn." in name
        }
        stock = {f"{p}_proj.{kind}" for p in ("q", "k", "v", "out") for kind in ("weight", "bias")}
        return names - stock

    mask_network = {"mask_network.query_weight", "mask_network.key_weight"}
    assert added() == added(gumbel=True) == set()
    assert added(calibration="fixed") == mask_network
    assert added(calibration="annealed") == mask_network | {"annealing.annealing_step"}
    assert added(calibration="gated") == mask_network | {"gate.weight", "gate.bias"}
    assert added(output_gate=True) == {"output_gate.weight", "output_gate.bias"}
    assert added(leaky=True) == {"null.key", "null.value"}
    assert added(leaky=True, null_bias=-4.0) == {"null.key", "null.value", "null.bias"}
