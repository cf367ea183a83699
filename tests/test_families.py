"""The table of families, and its registration with the Auto classes whatever is imported first."""

import importlib
import importlib.machinery
import importlib.util
import subprocess
import sys
from types import SimpleNamespace

import pytest
import transformers

import hf_attncal
from hf_attncal import families
from hf_attncal.families import BACKBONES, FAMILIES


def run(*lines: str, path: str | None = None) -> subprocess.CompletedProcess:
    code = "\n".join(["import sys", *([] if path is None else [f"sys.path.insert(0, {path!r})"]), *lines])
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


# ---- the table ----


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_a_row_names_what_there_is(family):
    assert family.config_class.model_type == family.model_type
    assert family.model_class is family.auto_classes[family.auto]
    for name, model_class in family.auto_classes.items():
        assert model_class._auto_class == name
        assert getattr(transformers, name)._model_mapping[family.config_class] is model_class
    if family.stock is not None:
        assert BACKBONES[family.stock.config_class.model_type] is family
        assert issubclass(family.config_class, family.stock.config_class)
        assert issubclass(family.model_class, family.stock.model_class)


def test_what_is_exported_is_there():
    for name in hf_attncal.__all__:
        assert getattr(hf_attncal, name) is not None
    assert set(hf_attncal.__all__) <= set(dir(hf_attncal))
    with pytest.raises(AttributeError, match="has no attribute 'AttnCalNothing'"):
        _ = hf_attncal.AttnCalNothing


# ---- registration ----

CHECK = (
    "from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer",
    "for name in ('attncal_marian', 'attncal_bart', 'mask_align', 'hmm_align', 'luong'):",
    "    config = AutoConfig.for_model(name)",
    "    assert type(config).__module__.startswith('hf_attncal.models.'), config",
    "    assert type(config) in AutoModel._model_mapping",
    "    assert (type(config) in AutoModelForSeq2SeqLM._model_mapping) == (not name.endswith('align'))",
    "assert not [finder for finder in sys.meta_path if 'hf_attncal' in type(finder).__module__]",
)


@pytest.mark.parametrize(
    "first",
    [
        "import transformers, hf_attncal",
        "import hf_attncal.models.losses",
        "import hf_attncal.adapters.layers",  # imports peft, and that transformers
    ],
)
def test_the_auto_classes_know_our_models_whatever_is_imported_first(first):
    done = run(first, *CHECK)
    assert done.returncode == 0, done.stderr


def test_the_package_comes_first_and_the_import_of_transformers_looks_as_it_always_does():
    done = run(
        "import hf_attncal, importlib.resources, importlib.util, inspect, pickle",
        "assert 'transformers' not in sys.modules and 'torch' not in sys.modules",
        # As many packages ask what is installed.
        "assert importlib.util.find_spec('transformers').loader.path.endswith('.py')",
        *CHECK,
        "import transformers",
        "assert type(transformers.__spec__.loader).__module__.endswith('_frozen_importlib_external')",
        "assert 'Licensed under the Apache License' in inspect.getsource(transformers)",
        "assert (importlib.resources.files('transformers') / '__init__.py').is_file()",
        "assert pickle.loads(pickle.dumps(AutoConfig)) is AutoConfig",
        "assert pickle.loads(pickle.dumps(config)).to_dict() == config.to_dict()",
    )
    assert done.returncode == 0, done.stderr


def test_who_imports_transformers_past_us_has_our_models_when_one_is_used():
    done = run(
        "import hf_attncal, importlib.machinery",
        "sys.meta_path.insert(0, importlib.machinery.PathFinder)",
        "import transformers",
        "assert 'mask_align' not in transformers.CONFIG_MAPPING",
        "hf_attncal.MaskAlignConfig",
        "assert 'mask_align' in transformers.CONFIG_MAPPING",
    )
    assert done.returncode == 0, done.stderr


def test_an_import_of_transformers_that_fails_says_why_itself_each_time(tmp_path):
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text("raise ImportError('no such backend')")
    for _ in range(2):
        done = run(
            "import hf_attncal",
            "try: import transformers",
            "except ImportError as error: assert str(error) == 'no such backend'",
            "import transformers",
            path=str(tmp_path),
        )
        assert done.returncode == 1
        assert done.stderr.rstrip().endswith("ImportError: no such backend")
    done = run("sys.modules['transformers'] = None", "import hf_attncal", "import transformers")
    assert "import of transformers halted" in done.stderr


def test_a_loader_of_another_kind_is_left_alone(monkeypatch):
    loader = SimpleNamespace(load_module=lambda name: None)
    spec = importlib.machinery.ModuleSpec("transformers", loader)
    finder = families._FinderOfTransformers()
    other = SimpleNamespace(find_spec=lambda *_: spec)
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(), finder, SimpleNamespace(), other])
    assert finder.find_spec("transformers") is spec
    assert spec.loader is loader
    assert finder.find_spec("transformers.models") is None
    monkeypatch.setattr(sys, "meta_path", [finder])
    assert finder.find_spec("transformers") is None


def test_registering_twice_is_registering_once():
    families.register.cache_clear()
    families.register()
    assert transformers.AutoConfig.for_model("mask_align").model_type == "mask_align"
