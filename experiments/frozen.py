"""Trained translation models as they are: which ones an experiment looks at, and what its results say of them."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.io.files import read_lines

HYPOTHESES = "test.hypotheses.txt"  # beside a trained model
DESCRIBED = (
    "model_type",
    "d_model",
    "encoder_layers",
    "encoder_attention_heads",
    "encoder_ffn_dim",
    "vocab_size",
    "attention_window",
    "input_feeding",
    "selective_gate",
    "uam",
)


@dataclass(frozen=True)
class Frozen:
    """A folder that a training of the package has left, under the name of its setting."""

    name: str
    folder: Path
    seed: int  # of the training

    @property
    def stem(self) -> str:
        """What its results file is called."""
        return f"{self.name}_seed{self.seed}"

    @property
    def files(self) -> dict[str, Path]:
        """The weights, to be stated by their checksum."""
        return {f"{self.stem}/{path.name}": path for path in sorted(self.folder.glob("*.safetensors"))}

    def in_its_case(self, lines: Sequence[str]) -> list[str]:
        """Text as the model was trained to read it."""
        run = json.loads((self.folder / "results.json").read_text(encoding="utf-8"))
        return [line.lower() for line in lines] if run["config"]["data"].get("lowercase") else list(lines)

    def hypotheses(self, sources: Sequence[str], path: Path) -> list[str]:
        """What the training has made of the sources of its test text in the end.

        Raises:
            ValueError: its file is not there, or has another number of lines than `sources`, which stand in `path`.
        """
        file = self.folder / HYPOTHESES
        found = read_lines(file)
        if len(found) != len(sources):
            raise ValueError(
                f"{file} has {len(found)} lines for {len(sources)} of {path}. Give the folder of a model trained with "
                "this test text."
            )
        return found

    def load(self):
        """Model, in evaluation mode, and tokenizer, in float32 on the CPU."""
        model, tokenizer = load_seq2seq(self.folder, dtype="float32")
        return model.eval(), tokenizer

    def config(self, model) -> dict:
        """Its part of the configuration of a results file."""
        described = {key: getattr(model.config, key, None) for key in (*DESCRIBED, "streams", "hard_attention")}
        model_config = {key: value for key, value in described.items() if value is not None}
        return {"setting": self.name, "training": {"seed": self.seed}, "model": model_config}


def add_models(parser: argparse.ArgumentParser) -> None:
    """The option `--model`, which `read_models` reads."""
    help = "folder of a finished training, with its `results.json`; once for each seed of each setting"
    parser.add_argument("--model", action="append", required=True, metavar="NAME=FOLDER", dest="models", help=help)


def read_models(values: list[str]) -> list[Frozen]:
    """The models of `--model`.

    Raises:
        ValueError: no `NAME=FOLDER`, a name that no file can have, a folder without the results of a training, or two
            models of one name and seed.
    """
    models: dict[str, Frozen] = {}
    for value in values:
        name, _, folder = value.partition("=")
        if not name.isidentifier() or not folder:
            raise ValueError(f"--model must be NAME=FOLDER, with a NAME of letters, digits and `_`, got {value!r}.")
        results = Path(folder, "results.json")
        try:
            seed = json.loads(results.read_text(encoding="utf-8"))["config"]["training"]["seed"]
        except FileNotFoundError as error:
            raise ValueError(f"{results} is not there. Give the folder of a finished training.") from error
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{results} does not tell the seed of a training (`config.training.seed`).") from error
        model = Frozen(name, Path(folder), seed)
        if model.stem in models:
            other = models[model.stem].folder
            raise ValueError(
                f"{other} and {folder} are both `{name}` with seed {seed}. Give one of them, or two names."
            )
        models[model.stem] = model
    return list(models.values())
