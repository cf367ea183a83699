"""A package of someone else, which adds a family, a command and a method of attribution by its entry points."""

from hf_attncal.families import Card, Family

FAMILY = Family(
    model_type="toy",
    label="a toy",
    modules=("attncal_toy.configuration_toy", "attncal_toy.modeling_toy"),
    config="ToyConfig",
    model="ToyForConditionalGeneration",
    auto="AutoModelForSeq2SeqLM",
    card=Card("translation", ("d_model",), "toy-attention", "translation"),
    switches=(),
)
