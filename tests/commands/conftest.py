"""The command in the process of the test."""

import io
import sys

import pytest

from hf_attncal.commands import main


@pytest.fixture
def attncal(monkeypatch, capfdbinary):
    """Run the command in this process: (arguments, standard input) -> (status, standard output, standard error)."""

    def run(*arguments: str, text: str = "", raw: bytes | None = None):
        data = text.encode() if raw is None else raw
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        status = main(list(arguments))
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        return status, out.decode(), err.decode()

    return run


@pytest.fixture(scope="module", autouse=True)
def small_and_silent():
    """Let a check learn from errors in 400 pairs, in place of 6,000, and no job tell how long it takes."""
    from hf_attncal.checking.check_learning import learn_check

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hf_attncal.io.messages.SILENCE", 3600)
        patch.setattr(learn_check, "__defaults__", (400, *learn_check.__defaults__[1:]))
        yield


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A folder with an aligner that counts and its text, and text that it has not seen."""
    from english_german import generate_split, write_pairs

    from hf_attncal.alignment.aligner_job import AlignerConfig, AlignerJob

    folder = tmp_path_factory.mktemp("trained")
    split = generate_split(800, 60, 0, seed=2)
    write_pairs(split.train, folder / "train.en", folder / "train.de")
    write_pairs(split.valid, folder / "dev.en", folder / "dev.de")
    train = {"source": str(folder / "train.en"), "target": str(folder / "train.de")}
    settings = {"preset": "hmm", "data": {"train": train}, "training": {"output_dir": str(folder / "aligner")}}
    AlignerJob.train(AlignerConfig.make(settings | {"tokenizer": {"vocab_size": 500}}))
    return folder
