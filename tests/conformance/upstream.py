"""transformers' own test mixins, imported from where `fetch_upstream_tests.py` put them.

They are modules of a package `tests` and import each other relatively; here that package is called `upstream_tests`.
What they import from folders that the source distribution leaves out is replaced by stand-ins: generation is tested by
`tests/test_generation.py`, and export to ONNX and the like is not offered.
"""

import importlib
import sys
import warnings
from types import ModuleType

import pytest
from fetch_upstream_tests import is_fetched, upstream_tests

PACKAGE = "upstream_tests"

# Arguments that every configuration accepts and keeps, none of them at its default.
CONFIG_COMMON_KWARGS = {
    "architectures": ["SomeModel"],
    "chunk_size_feed_forward": 5,
    "dtype": "float16",
    "id2label": {0: "label"},
    "label2id": {"label": "0"},
    "output_attentions": True,
    "output_hidden_states": True,
    "problem_type": "regression",
    "return_dict": False,
    "bos_token_id": 6,
    "decoder_start_token_id": 10,
    "eos_token_id": 8,
    "pad_token_id": 7,
    "tie_word_embeddings": False,
}
STAND_INS = {
    "exporters.test_export": {"ExportTesterMixin": type("ExportTesterMixin", (), {})},
    "generation.test_utils": {"GenerationTesterMixin": type("GenerationTesterMixin", (), {})},
    "utils.test_configuration_utils": {"config_common_kwargs": CONFIG_COMMON_KWARGS},
}


def _install() -> None:
    folder = upstream_tests()
    if not is_fetched(folder):
        raise RuntimeError(
            f"The conformance suite needs transformers' own tests in {folder}: "
            "run `python tests/conformance/fetch_upstream_tests.py` once."
        )
    _add_module(PACKAGE, __path__=[str(folder)])
    for name, attributes in STAND_INS.items():
        if folder.joinpath(*name.split(".")).with_suffix(".py").is_file():
            continue
        _add_module(f"{PACKAGE}.{name.split('.')[0]}", __path__=[])
        _add_module(f"{PACKAGE}.{name}", **attributes)


def _add_module(name: str, **attributes) -> None:
    module = sys.modules.setdefault(name, ModuleType(name))
    vars(module).update(attributes)


_install()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", pytest.PytestUnknownMarkWarning)  # upstream's own marks
    modeling = importlib.import_module(f"{PACKAGE}.test_modeling_common")
ModelTesterMixin = modeling.ModelTesterMixin
GenerationTesterMixin = modeling.GenerationTesterMixin
ConfigTester = importlib.import_module(f"{PACKAGE}.test_configuration_common").ConfigTester


def announce(model_type: str, model_class: type, conditional_generation_class: type) -> None:
    """Tell the mixins what kind of model our classes are: they go by lists of names, which nobody else sees."""
    modeling.MODEL_MAPPING_NAMES = {**modeling.MODEL_MAPPING_NAMES, model_type: model_class.__name__}
    modeling.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES = {
        **modeling.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
        model_type: conditional_generation_class.__name__,
    }
