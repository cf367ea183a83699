"""Each variant of cross-attention has a setting, a slow reference, a line in the papers and a name."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from hf_attncal.adapters import AttentionCalibrationConfig
from hf_attncal.commands.adapt import adapt
from hf_attncal.commands.train import train
from hf_attncal.families import VARIANTS, Variant, translators
from hf_attncal.models.calibration import FUSIONS
from hf_attncal.models.configuration_attncal import CALIBRATIONS, AttnCalMarianConfig
from hf_attncal.training.request import adapter_names, model_names

PAPERS = (Path(__file__).parents[1] / "docs" / "papers.md").read_text(encoding="utf-8")
FIRST_CELLS = set(re.findall(r"(?m)^\| ([^|]+?) \|", PAPERS))
# Slow reference under tests/, first cell of the line in docs/papers.md, and classes with the added parameters.
PARTS = {
    "fixed": ("reference:fixed", "eq. 10 fixed", ["calibration.MaskNetwork"]),
    "annealed": ("reference:annealed", "eq. 11 annealed", ["calibration.MaskNetwork"]),
    "gated": ("reference:gated", "eq. 12 gated", ["calibration.MaskNetwork", "calibration.HeadGate"]),
    "leaky": ("reference:null_scores", "Mask-Align, sec. 3.2", ["calibration.NullToken"]),
    "gumbel": ("reference:gumbel_softmax", "Discrete Transformer", []),
    "output_gate": ("reference:gated_output", "output gate (ours)", ["calibration.OutputGate"]),
    "copy": ("reference_copying:word_probabilities", "eq. 9", ["copying.CopyMechanism"]),
    "guided": ("reference:guided", "alignment loss", []),
}


def exists(name: str) -> bool:
    """Return True if `module:name` exists."""
    module, _, member = name.partition(":")
    return hasattr(import_module(module), member)


def takes(config_class: type, variant: Variant) -> bool:
    """Return True if a configuration class has the field, accepts the value, and refuses a similar one."""
    if variant.field not in {field for base in config_class.__mro__ for field in getattr(base, "__annotations__", {})}:
        return False
    try:
        config_class(**{variant.field: variant.value})
    except Exception:
        return False
    with pytest.raises(Exception, match=variant.field):
        config_class(**{variant.field: f"{variant.value}x"})
    return True


def named_in(help_text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", help_text) is not None


def missing(variant: Variant) -> list[str]:
    """Return the missing parts of a variant."""
    reference, paper, learned = PARTS[variant.name]
    parts = {
        "setting": takes(AttnCalMarianConfig, variant),
        "setting of an adapter": takes(AttentionCalibrationConfig, variant) == variant.adapter,
        "name of --model": model_names().get(variant.name) == {variant.field: variant.value},
        "name of --calibration": (variant.name in adapter_names()) == variant.adapter,
        "help of train": named_in(train.__doc__, variant.name),
        "help of adapt": named_in(adapt.__doc__, variant.name) == variant.adapter,
        "family": any(variant.field in family.switches for family in translators().values()),
        "slow reference": exists(reference),
        "line of the papers": paper in FIRST_CELLS,
        "what it learns": all(exists(f"hf_attncal.models.{name.replace('.', ':')}") for name in learned),
    }
    return [part for part, there in parts.items() if not there]


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
def test_a_variant_has_all_of_its_parts(variant):
    assert missing(variant) == []


def test_the_validator_and_the_table_have_the_same_calibrations():
    assert tuple(v.value for v in VARIANTS.values() if v.field == "calibration") == CALIBRATIONS
    assert tuple(FUSIONS) == CALIBRATIONS


def test_each_choice_of_the_commands_is_in_their_help_and_each_switch_of_a_family_is_a_variant():
    assert [name for name in model_names() if not named_in(train.__doc__, name)] == []
    assert [name for name in adapter_names() if not named_in(adapt.__doc__, name)] == []
    fields = {variant.field for variant in VARIANTS.values()}
    assert {switch for family in translators().values() for switch in family.switches} == fields
