"""The table of families, and its registration with the Auto classes whatever is imported first."""

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from warm import warm

import hf_attncal
from hf_attncal import families
from hf_attncal.alignment import WordAligner
from hf_attncal.families import FAMILIES, backbones
from hf_attncal.hub import inspect_folder
from hf_attncal.inference.translation import translate_texts
from hf_attncal.io.errors import CommandError
from hf_attncal.io.extras import Table
from hf_attncal.training.seq2seq import TranslationConfig, train_translation

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


# ---- the table alone ----

PACKAGE = Path(hf_attncal.__file__).parent


# ---- a family more ----

SENTENCES = ["the old house", "a house is old", "the house is a house", "old is the house"] * 4


TOY = Path(__file__).with_name("toy_distribution")  # what pip would install of someone else's package


@pytest.fixture
def toy(monkeypatch):
    """The family that another package adds; gone again after the test."""
    monkeypatch.syspath_prepend(TOY)
    vars(FAMILIES).pop("others", None)
    families.register_others.cache_clear()
    families.register_others()
    row = FAMILIES["toy"]
    config_class = row.config_class
    yield row
    transformers.CONFIG_MAPPING._extra_content.pop(row.model_type)
    transformers.AutoModelForSeq2SeqLM._model_mapping._extra_content.pop(config_class)
    for module in (*row.whole_modules, "attncal_toy"):
        sys.modules.pop(module)
    del FAMILIES.others


def test_a_family_of_another_package_is_its_model_files_and_a_row(toy, tmp_path):
    """It can be trained, saved with a card, loaded, used to translate and align, and is on the command line."""
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "max_position_embeddings": 32}
    sizes |= {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in SIZES_OF_A_SIDE.items()}
    folder = tmp_path / "run"
    config = TranslationConfig.make(
        {
            "data": {"train": {side: str(tmp_path / side) for side in ("source", "target")}, "held_out_pairs": 4},
            "tokenizer": {"vocab_size": 24},
            "model": {"backbone": toy.name} | sizes,
            "training": {"output_dir": str(folder), "max_steps": 2, "disable_tqdm": True, "tokens_per_batch": 64},
        }
    )
    assert train_translation(config)["steps"] == 2

    found = inspect_folder(folder)
    assert (found.model_type, found.architecture, found.problems) == (toy.model_type, toy.model, ())
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "A translation model (toy) with no calibration." in card
    assert "- toy-attention" in card
    assert "- `d_model`: `8`" in card

    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
    assert type(model) is toy.model_class
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len(translate_texts(model, tokenizer, SENTENCES[:2])) == 2
    (links,) = WordAligner.from_pretrained(folder, device="cpu").align([(SENTENCES[0], SENTENCES[1])])
    assert {target for _, target in links.links} == set(range(4))

    files = [tmp_path / side for side in ("source", "target")]
    with pytest.raises(CommandError, match="not for a toy, which takes no variant"):
        hf_attncal.train(source=files[0], target=files[1], output=tmp_path / "o", model=f"{toy.name}+leaky")

    lines = (
        "from hf_attncal.commands import main",
        f"assert main(['translate', {str(folder)!r}, '--source', {str(files[0])!r}]) == 0",
        "import sys, transformers",
        "from hf_attncal.report.attribution import METHODS, attribute, works_on",
        f"model = transformers.MarianMTModel.from_pretrained({str(folder)!r})",
        f"tokenizer = transformers.AutoTokenizer.from_pretrained({str(folder)!r})",
        "assert 'attncal_toy.attribution' not in sys.modules",
        "(found,) = attribute(model, tokenizer, ['the old house'], ['a house'], 'ends')",
        "assert found.words().tolist() == [[0, 0, 1]] * 2",
        "assert 'ends' in works_on(model) and list(METHODS)[-1] == 'ends'",
    )
    done = run_with_toy("-c", "\n".join(lines))
    assert (done.returncode, len(done.stdout.splitlines())) == (0, len(SENTENCES)), done.stderr


def run_with_toy(*arguments: str) -> subprocess.CompletedProcess:
    """Run Python where the other package is installed."""
    path = os.pathsep.join([str(TOY), str(PACKAGE.parent)])
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )


def test_a_command_of_another_package():
    done = run_with_toy("-m", "hf_attncal", "hello", "Anna", "--times", "2")
    assert (done.returncode, done.stdout) == (0, "hello Anna hello Anna\n"), done.stderr
    assert "Greet someone" in run_with_toy("-m", "hf_attncal", "hello", "--help").stdout


def test_entry_points_are_read_when_a_name_is_not_ours():
    lines = (
        "import hf_attncal, sys",
        "assert hf_attncal.families.FAMILIES['luong'].name == 'luong'",
        "assert 'others' not in vars(hf_attncal.families.FAMILIES)",
        "assert 'toy' in hf_attncal.families.FAMILIES and 'nothing' not in hf_attncal.families.FAMILIES",
        "assert len(hf_attncal.families.FAMILIES) == len(list(hf_attncal.families.FAMILIES))",
        "assert 'transformers' not in sys.modules",
    )
    done = run_with_toy("-c", "\n".join(lines))
    assert done.returncode == 0, done.stderr


def test_a_family_that_cannot_be_imported_is_left_out_with_a_warning(monkeypatch):
    table = Table({"ours": 1}, "attncal.toys")
    points = [
        importlib.metadata.EntryPoint(name, value, "attncal.toys")
        for name, value in (("ours", "no.such:thing"), ("broken", "no_such_package:THING"), ("theirs", "math:pi"))
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    with pytest.warns(UserWarning, match="attncal.toys: `broken` is left out, as no_such_package:THING cannot be"):
        assert dict(table) == {"ours": 1, "theirs": math.pi}
    with pytest.raises(KeyError):
        table["broken"]


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
