"""A saved folder works where this package is not installed: loads, generates the same tokens, can be saved again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from discrete_helpers import tiny_discrete
from helpers import scatter, tiny_batch, tiny_model
from shipped import ALIGNER, MODELS, OUTPUT_GATED
from warm import warm

from hf_attncal import MaskAlignConfig, MaskAlignModel

PROGRAM = Path(__file__).with_name("load_without_package.py")

SCHEDULE = {"gumbel_straight_through": True, "gumbel_straight_through_steps": 10, "receptive_field_penalty": 0.1}
DISCRETE = {"seq2seq": {"streams": 2, **SCHEDULE}, "causal": {"streams": 1, **SCHEDULE}}


def in_fresh_process(source, destination, home, batch) -> dict:
    """Run PROGRAM on the folders in `source`, with an empty module cache, and return what it printed."""
    request = {
        "names": [*MODELS, *OUTPUT_GATED],
        "discrete": list(DISCRETE),
        "source": str(source),
        "destination": str(destination),
        "inputs": {name: batch[name].tolist() for name in ("input_ids", "attention_mask")},
        "labels": batch["labels"].tolist(),
    }
    environment = {
        "HF_HOME": str(home),
        "HF_MODULES_CACHE": str(home / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PATH": "",
    }
    command = warm([sys.executable, "-W", "error::FutureWarning", PROGRAM, json.dumps(request)], "bare")
    run = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    answer = [line for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    return json.loads(answer[-1].removeprefix("ANSWER "))


def searched(model, inputs) -> dict[str, torch.Tensor]:
    """Return what the model generates, by search; `load_without_package.py` does the same."""
    options = {"max_new_tokens": 6, "min_new_tokens": 6}
    torch.manual_seed(0)
    return {
        "tokens": model.generate(**inputs, **options, num_beams=2),
        "greedy": model.generate(**inputs, **options, num_beams=1, do_sample=False),
        "uncached": model.generate(**inputs, **options, num_beams=1, do_sample=False, use_cache=False),
        "sampled": model.generate(**inputs, **options, do_sample=True),
    }


@pytest.fixture(scope="module")
def generations(tmp_path_factory) -> dict:
    """The models here, loaded where the package is absent, and loaded from what that process saved."""
    root, batch, answers = tmp_path_factory.mktemp("remote"), tiny_batch(), {}
    inputs = {name: tensor for name, tensor in batch.items() if name != "labels"}
    for name, switches in (MODELS | OUTPUT_GATED).items():
        model = tiny_model(name.partition(",")[0], torch.float32, **switches).eval()
        answers[name] = {"annealing_step": model.annealing_step}
        answers[name] |= {key: value.tolist() for key, value in searched(model, inputs).items()}
        model.save_pretrained(root / "saved here" / name)
    bare = tiny_model("marian", torch.float32, **MODELS["marian"]).model.eval()
    with torch.no_grad():
        hidden = bare(**inputs, decoder_input_ids=inputs["input_ids"]).last_hidden_state
    bare.save_pretrained(root / "saved here" / "bare")
    answers["bare"] = {"class": type(bare).__name__, "sum": hidden.abs().sum().item()}
    for name, switches in DISCRETE.items():
        model = tiny_discrete(name, torch.float32, **switches).eval()
        model.set_annealing_step(7)
        tokens = model.generate(**inputs, max_new_tokens=6, min_new_tokens=6).tolist()
        answers[name] = {"tokens": tokens, "untrained": [], "annealing_step": 7}
        model.save_pretrained(root / "saved here" / name)
    target = {"target_input_ids": batch["labels"].clamp(min=0), "target_attention_mask": batch["labels"].ne(-100)}
    torch.manual_seed(3)
    aligner = MaskAlignModel(MaskAlignConfig(**ALIGNER)).eval()
    aligner.set_token_counts(torch.arange(11), torch.arange(11).flip(0))
    scatter(aligner)
    aligner.forward_direction.prediction.jumps.copy_(torch.tensor([0.3, 0.1, 0.5, 0.7, 0.2]))
    answers["aligner"] = {
        "weights": aligner.alignments(**inputs, **target).forward_attention.tolist(),
        "loss": aligner.train()(**inputs, **target, return_loss=True).loss.item(),
    }
    aligner.save_pretrained(root / "saved here" / "aligner")
    results = {"here": answers, "root": root}
    for i, (source, destination) in enumerate([("saved here", "saved there"), ("saved there", "saved again")]):
        home = root / f"home {i}"
        home.mkdir()
        results[destination] = in_fresh_process(root / source, root / destination, home, batch)
    return results


@pytest.mark.parametrize("place", ["saved there", "saved again"])
@pytest.mark.parametrize("name", [*MODELS, *OUTPUT_GATED])
class TestWithoutThePackage:
    @pytest.mark.parametrize("search", ["tokens", "greedy", "uncached", "sampled"])
    def test_the_same_tokens(self, generations, name, place, search):
        assert generations[place][name][search] == generations["here"][name][search]

    def test_the_annealing_step_is_kept(self, generations, name, place):
        assert generations[place][name]["annealing_step"] == (4 if name == "bart" else None)

    def test_it_is_ours(self, generations, name, place):
        assert generations[place][name]["model_type"] == f"attncal_{name.partition(',')[0]}"

    def test_the_right_parameters_learn(self, generations, name, place):
        """Both objectives of a calibrated model; the gate of an output gate, in both layers."""
        trained = generations[place][name]["trained"]
        assert any(".mask_network." in parameter for parameter in trained) == (name in MODELS)
        gates = [parameter for parameter in trained if parameter.endswith(".output_gate.weight")]
        assert len(gates) == (2 if name in OUTPUT_GATED else 0)
        assert "model.shared.weight" in trained


@pytest.mark.parametrize("place", ["saved here", "saved there", "saved again"])
@pytest.mark.parametrize("name", [*MODELS, *OUTPUT_GATED])
class TestFolder:
    def test_ships_its_code_and_names_it(self, generations, name, place):
        folder = generations["root"] / place / name
        auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
        assert set(auto_map) >= {"AutoConfig", "AutoModelForSeq2SeqLM"}
        for reference in auto_map.values():
            module, _, _ = reference.partition(".")
            assert (folder / f"{module}.py").is_file()

    def test_ships_no_other_backbone(self, generations, name, place):
        other = {"marian": "bart", "bart": "marian"}[name.partition(",")[0]]
        assert not list((generations["root"] / place / name).glob(f"modeling_*_{other}.py"))


@pytest.mark.parametrize("place", ["saved there", "saved again"])
@pytest.mark.parametrize("name", DISCRETE)
def test_the_discrete_transformer(generations, name, place):
    """Both streams and a causal model: the same tokens and step, and no parameter that does not learn."""
    assert generations[place][name] == generations["here"][name]


@pytest.mark.parametrize("name", DISCRETE)
def test_the_folder_of_the_discrete_transformer(generations, name):
    folder = generations["root"] / "saved again" / name
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    models = {"seq2seq": {"AutoModel", "AutoModelForSeq2SeqLM"}, "causal": {"AutoModelForCausalLM"}}
    assert set(auto_map) == {"AutoConfig"} | models[name]
    assert {path.name for path in folder.glob("*.py")} == {
        "cache.py",
        "calibration.py",
        "configuration_discrete.py",
        "discrete_layers.py",
        "discrete_stacks.py",
        "functional.py",
        "functional_discrete.py",
        "heads.py",
        "limits.py",
        "loading.py",
        "losses.py",
        "modeling_discrete.py",
    }


@pytest.mark.parametrize("place", ["saved there", "saved again"])
def test_the_bare_model(generations, place):
    answer = generations[place]["bare"]
    assert answer["class"] == "AttnCalMarianModel"
    assert answer["sum"] == pytest.approx(generations["here"]["bare"]["sum"], rel=1e-6)


@pytest.mark.parametrize("place", ["saved there", "saved again"])
def test_either_auto_class_loads_what_either_class_saved(generations, place):
    assert generations[place]["other class"] == ["AttnCalMarianMTModel", "AttnCalMarianModel"]
    expected = generations["here"]["bare"]["sum"]
    assert generations[place]["other class, sum"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("place", ["saved there", "saved again"])
def test_the_word_aligner(generations, place):
    answer, expected = generations[place]["aligner"], generations["here"]["aligner"]
    assert answer["class"] == "MaskAlignModel"
    assert torch.tensor(answer["weights"]).allclose(torch.tensor(expected["weights"]), atol=1e-6)
    assert answer["loss"] == pytest.approx(expected["loss"], rel=1e-5)  # the token frequencies count, too
    assert answer["untrained"] == []


@pytest.mark.parametrize("place", ["saved here", "saved there", "saved again"])
def test_the_folder_of_the_word_aligner(generations, place):
    folder = generations["root"] / place / "aligner"
    auto_map = json.loads((folder / "config.json").read_text())["auto_map"]
    assert {name: reference.rpartition("--")[2] for name, reference in auto_map.items()} == {
        "AutoConfig": "configuration_mask_align.MaskAlignConfig",
        "AutoModel": "modeling_mask_align.MaskAlignModel",
    }
    assert {path.name for path in folder.glob("*.py")} == {
        "calibration.py",
        "configuration_mask_align.py",
        "functional.py",
        "functional_jumps.py",
        "functional_mask_align.py",
        "limits.py",
        "loading.py",
        "losses.py",
        "mask_align_layers.py",
        "mask_align_prediction.py",
        "modeling_mask_align.py",
    }
