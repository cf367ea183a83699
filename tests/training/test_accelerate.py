"""The files of configs/accelerate: two processes that `accelerate launch` starts train what one process trains.

This file is both the test and, run as a script by `accelerate launch`, each of the two processes.
"""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml
from accelerate.commands.config.config_args import ClusterConfig
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType
from runs import ALIGNER_SIZES, ROOT, SENTENCES, german, largest_difference, tiny_aligner, translation_settings
from safetensors.torch import load_file

sys.path.insert(0, str(ROOT / "training"))
import train as script

from hf_attncal.training.checkpoints import WholeCheckpointsTrainer, in_one_piece

FILES = sorted((ROOT / "configs" / "accelerate").glob("*.yaml"))
# Without dropout, which draws other numbers in each process, and without Adam, which makes steps of rounding errors.
ALIKE = ["training.optim=sgd", "training.learning_rate=0.3", "training.tokens_per_batch=64", "training.bf16=false"]
ALIKE += ["model.dropout=0.0", "average_last=2", "training.save_total_limit=2"]
MODELS = {
    "marian": {"calibration": "gated", "leaky": True},
    "bart": {"backbone": "bart", "calibration": "annealed", "annealing_steps": 10},
    "luong": {"backbone": "luong", "calibration": "gated"},
    "discrete": {"backbone": "discrete_transformer", "streams": 2, "gumbel_noise": 0.0},
    "guided": {"guided": True},
}
JOBS = [*MODELS, "language", "aligner"]


def lay_out(folder: Path, name: str) -> list[str]:
    """Write the text and the settings of a run into a folder; return its command line."""
    folder.mkdir(parents=True)
    for split, sentences in (("train", SENTENCES * 3), ("dev", SENTENCES[:6]), ("test", SENTENCES[4:9])):
        lines = {"en": sentences, "de": list(map(german, sentences))}
        lines["align"] = [" ".join(f"{n}-{n}" for n in range(len(s.split()))) for s in sentences]
        for suffix, of in lines.items():
            (folder / f"{split}.{suffix}").write_text("\n".join(of) + "\n", encoding="utf-8")
    path = translation_settings(folder, **MODELS.get(name, {}))
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    if name == "guided":
        values["data"]["train"]["guide"] = "train.align"
    if name == "language":
        sizes = {"d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 16}
        values = {key: values[key] for key in ("tokenizer", "training", "average_last")}
        values["tokenizer"]["vocab_size"] = 40
        values |= {"job": name, "model": sizes | {"max_position_embeddings": 128, "gumbel_noise": 0.0}}
        values["data"] = {split: {"text": f"{split}.en"} for split in ("train", "dev", "test")}
    if name == "aligner":
        values = {key: values[key] for key in ("tokenizer", "training", "average_last", "data")}
        values["data"]["test"]["gold"] = "test.align"
        values |= {"job": name, "model": {key: size for key, size in ALIGNER_SIZES.items() if key != "vocab_size"}}
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return ["--config", str(path), "--data", str(folder), *ALIKE]


def launch(config: str, *arguments: str, rank: int = 0, port: int | None = None) -> subprocess.Popen:
    """Start the command of a file of configs/accelerate, with two processes in all."""
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch"]
    command += ["--config_file", str(ROOT / "configs" / "accelerate" / f"{config}.yaml"), "--num_processes", "2"]
    if config == "two_nodes":
        command += ["--machine_rank", str(rank), "--main_process_ip", "127.0.0.1"]
    command += ["--main_process_port", str(port or free_port())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": ":".join(sys.path)}
    return subprocess.Popen([*command, *arguments], env=environment, stderr=subprocess.PIPE, text=True)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def assert_equal_runs(one: Path, two: Path) -> None:
    """Assert the same weights and losses with one process and with two."""
    assert largest_difference(*(load_file(run / "model.safetensors") for run in (one, two))) < 1e-5
    found, expected = (json.loads((run / "results.json").read_text(encoding="utf-8")) for run in (two, one))
    assert (found["hardware"]["processes"], expected["hardware"]["processes"]) == (2, 1)
    both = [[entry["loss"] for entry in run["log_history"] if "loss" in entry] for run in (found, expected)]
    assert both[0] == pytest.approx(both[1], abs=1e-5)
    assert len(both[0]) == 4
    names = [json.loads((run / "config.json").read_text(encoding="utf-8"))["architectures"] for run in (one, two)]
    assert names[0] == names[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_accelerate_has_every_key_and_the_command_names_the_file(path):
    made = ClusterConfig.from_yaml_file(path)
    assert made.num_processes == 8 * made.num_machines
    text = path.read_text(encoding="utf-8")
    assert f"--config_file {path.relative_to(ROOT)} " in text
    for name in ("training/train.py", "configs/translation/wpt03_base.yaml"):
        assert name in text
        assert (ROOT / name).is_file()
    assert path.name in (ROOT / "docs" / "distributed.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_command_of_ddp_trains_what_one_process_trains(tmp_path):
    one, two = (lay_out(tmp_path / name, "marian") for name in ("one", "two"))
    process = launch("ddp", str(ROOT / "training" / "train.py"), *two)
    script.main(one)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-4000:]
    assert_equal_runs(tmp_path / "one" / "run", tmp_path / "two" / "run")


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    """The folder of every job, trained by one process."""
    folder = tmp_path_factory.mktemp("one")
    for name in JOBS:
        script.main(lay_out(folder / name, name))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("config", [path.stem for path in FILES])
def test_every_family_is_trained_as_by_one_process(config, one_process, tmp_path):
    port = free_port()
    nodes = [launch(config, __file__, str(tmp_path), rank=rank, port=port) for rank in range(1 + ("two" in config))]
    for node in nodes:
        _, errors = node.communicate(timeout=900)
        assert node.returncode == 0, errors[-4000:]
    for name in JOBS:
        assert_equal_runs(one_process / name / "run", tmp_path / name / "run")
        sharded = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        assert sharded == (config == "fsdp2")


@pytest.mark.parametrize(("version", "model"), [(1, tiny_aligner()), (2, torch.nn.Linear(1, 1))], ids=["1", "adapter"])
def test_fsdp1_and_adapters_are_refused_with_the_file_to_use(version, model):
    state = SimpleNamespace(fsdp_plugin=SimpleNamespace(fsdp_version=version))
    trainer = SimpleNamespace(is_fsdp_enabled=True, model=model, accelerator=SimpleNamespace(state=state))
    with pytest.raises(ValueError, match=rf"`fsdp_version`.*got {version}.*fsdp2.yaml.*ddp.yaml"):
        WholeCheckpointsTrainer._prepare_for_training(trainer)


def take_processes_for_gpus() -> None:
    """Accelerate shards where there are GPUs; elsewhere it takes FSDP2 for DDP, without a word."""
    made = AcceleratorState.__init__

    def init(self, *args, **kwargs):
        if PartialState._shared_state.get("distributed_type") == DistributedType.MULTI_CPU:
            PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
        made(self, *args, **kwargs)

    AcceleratorState.__init__ = init


def worker(folder: Path) -> None:
    """One of two processes: every job, and whether its model was sharded."""
    import hf_attncal.training.job as job

    def watch(model):
        whole = in_one_piece(model)
        sharded.append(whole is not model)
        return whole

    job.in_one_piece = watch
    if os.environ.get("ACCELERATE_USE_FSDP"):
        take_processes_for_gpus()
    first = os.environ["RANK"] == "0"
    for name in JOBS:
        sharded: list[bool] = []
        command = folder / f"{name}.command.json"
        if first:
            command.write_text(json.dumps(lay_out(folder / name, name)), encoding="utf-8")
        torch.distributed.barrier()
        script.main(json.loads(command.read_text(encoding="utf-8")))
        if first:
            (folder / f"{name}.json").write_text(json.dumps(sharded == [True]), encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    worker(Path(sys.argv[1]))
