"""The table of families, and its registration with the Auto classes whatever is imported first."""

import subprocess
import sys

import pytest
import transformers
from warm import warm

import hf_attncal
from hf_attncal import families
from hf_attncal.families import FAMILIES, backbones

SIZES_OF_A_SIDE = {"attention_heads": 2, "ffn_dim": 8}


def run(*lines: str, path: str | None = None, cold: bool = False) -> subprocess.CompletedProcess:
    code = "\n".join(["import sys", *([] if path is None else [f"sys.path.insert(0, {path!r})"]), *lines])
    command = [sys.executable, "-c", code]
    return subprocess.run(command if cold else warm(command, "torch"), capture_output=True, text=True)


# ---- the table ----


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_names_in_a_row_exist(family):
    assert family.config_class.model_type == family.model_type
    assert family.model_class is family.auto_classes[family.auto]
    for name, model_class in family.auto_classes.items():
        assert model_class._auto_class == name
        assert getattr(transformers, name)._model_mapping[family.config_class] is model_class
    if family.stock is not None:
        assert backbones()[family.stock.config_class.model_type] is family
        assert issubclass(family.config_class, family.stock.config_class)
        assert issubclass(family.model_class, family.stock.model_class)


def test_exported_names_exist():
    for name in hf_attncal.__all__:
        assert getattr(hf_attncal, name) is not None
    assert set(hf_attncal.__all__) <= set(dir(hf_attncal))
    with pytest.raises(AttributeError, match="has no attribute 'AttnCalNothing'"):
        _ = hf_attncal.AttnCalNothing


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_names_of_higher_rooms_in_a_row_exist(family):
    for field in ("sizes", "attention", "source", "after_preset"):
        assert callable(family.resolve(field)) or getattr(family, field) is None


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
        pytest.param("import transformers, hf_attncal", marks=pytest.mark.slow),
        "import hf_attncal.models.losses",
        # It imports peft, and that transformers.
        pytest.param("import hf_attncal.adapters.layers", marks=pytest.mark.slow),
    ],
)
def test_the_auto_classes_load_our_models_whatever_is_imported_first(first):
    done = run(first, *CHECK)
    assert done.returncode == 0, done.stderr


def test_model_files_that_need_only_torch_do_not_import_transformers():
    imports = [f"import hf_attncal.models.{file}" for file in families.TORCH_ALONE]
    done = run(*imports, "assert 'transformers' not in sys.modules", *CHECK)
    assert done.returncode == 0, done.stderr


def test_importing_the_package_first_does_not_change_transformers():
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
        cold=True,
    )
    assert done.returncode == 0, done.stderr


def test_our_models_are_registered_when_one_is_used():
    done = run(
        "import hf_attncal, importlib.machinery",
        "sys.meta_path.insert(0, importlib.machinery.PathFinder)",
        "import transformers",
        "assert 'mask_align' not in transformers.CONFIG_MAPPING",
        "hf_attncal.MaskAlignConfig",
        "assert 'mask_align' in transformers.CONFIG_MAPPING",
    )
    assert done.returncode == 0, done.stderr


def test_a_failing_import_of_transformers_keeps_its_own_error(tmp_path):
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
