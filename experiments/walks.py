"""Count the functions that a reader of the code meets on the way from a command to its work.

    python experiments/walks.py training
    python experiments/walks.py align
    python experiments/walks.py analyze

Prints a line for each stop, `file: function`, and their number. A stop is a function of `hf_attncal`, or of a training
script, in the order in which the run enters each for the first time; what only runs because something is imported is
left out, and so are lambdas and comprehensions.

`training` runs the script with a small copy of a config up to `Trainer.train`, `align` runs `attncal align run` with
a small aligner, `analyze` runs `attncal analyze` with a small translation model up to its first chart. The models are
made for the occasion, so a walk takes some seconds.
"""

import argparse
import random
import runpy
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import NamedTuple

import transformers
from matplotlib.figure import Figure

import hf_attncal

PACKAGE = Path(hf_attncal.__file__).parent
ROOT = PACKAGE.parent
SCRIPTS = ROOT / "training"
# What is no function of its own to a reader.
_NAMELESS = ("<module>", "<lambda>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
_WORDS = ("the", "cat", "saw", "a", "dog", "and", "sang", "to", "us", "all", "day", "long")


class Stop(NamedTuple):
    """A function that a run enters: its file below the repository, and its qualified name."""

    file: str
    function: str


class _Reached(BaseException):
    """The walk is over."""


def walk(run: Callable[[], object], until: Callable[[FrameType], bool] | None = None) -> list[Stop]:
    """Return the stops of a run, in order of first entry.

    Args:
        run: function to walk through; its output on standard output is dropped.
        until: tells whether the walk ends at a frame; None to end with the run.

    Raises:
        RuntimeError: the run ended without a frame that ends the walk.
    """
    stops: dict[Stop, None] = {}
    start = sys._getframe()

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event != "call":
            return
        if until is not None and until(frame):
            sys.setprofile(None)
            raise _Reached
        code = frame.f_code
        stop = _stop(code.co_filename, code.co_qualname)
        if stop is None or stop in stops or code.co_name in _NAMELESS or "<locals>" in code.co_qualname:
            return
        if not _while_importing(frame, start) and not _is_class_body(frame):
            stops[stop] = None

    with redirect_stdout(sys.stderr):
        sys.setprofile(enter)
        try:
            run()
            if until is not None:
                raise RuntimeError("The run ended before the end of the walk.")
        except _Reached:
            pass
        finally:
            sys.setprofile(None)
    return list(stops)


@cache
def _stop(file: str, function: str) -> Stop | None:
    path = Path(file)
    inside = path.is_relative_to(PACKAGE) or path.is_relative_to(SCRIPTS)
    return Stop(str(path.relative_to(ROOT)), function) if inside else None


def _while_importing(frame: FrameType, start: FrameType) -> bool:
    """Tell whether a module is being imported between a frame and the one that the walk started in."""
    while frame is not None and frame is not start:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _is_class_body(frame: FrameType) -> bool:
    return "__module__" in frame.f_code.co_names and "__qualname__" in frame.f_code.co_names


# ---- the walks ----


def write_text_files(folder: Path, pairs: int = 400) -> None:
    """Write `train`, `val` and `test_2016_flickr` in "two languages", under the names of configs/translation."""
    draw = random.Random(1)
    for split, size, ending in (("train", pairs, ""), ("val", 8, ""), ("test_2016_flickr", 8, "")):
        lines = [[draw.choice(_WORDS) for _ in range(draw.randint(3, 8))] for _ in range(size)]
        for language, of in (("en", str), ("de", str.upper)):
            text = "".join(of(" ".join(line)) + "\n" for line in lines)
            (folder / f"{split}.{language}{ending}").write_text(text, encoding="utf-8")


def small_settings(folder: Path) -> list[str]:
    """Settings that make a translation config small, for the text of `write_text_files`."""
    sizes = ("d_model", "encoder_ffn_dim", "decoder_ffn_dim")
    layers = ("encoder_layers", "decoder_layers")
    return [
        "data.train.source=train.en",
        "data.train.target=train.de",
        "tokenizer.vocab_size=60",
        *(f"model.{name}=16" for name in sizes),
        *(f"model.{name}=1" for name in layers),
        f"training.output_dir={folder / 'model'}",
        "training.max_steps=2",
        "training.warmup_steps=1",
        "training.report_to=none",
    ]


def walk_training(folder: Path) -> list[Stop]:
    """Walk from the script to `Trainer.train`, with configs/translation/multi30k_gated.yaml made small."""
    write_text_files(folder)
    main = runpy.run_path(str(SCRIPTS / "train.py"))["main"]
    config = ROOT / "configs" / "translation" / "multi30k_gated.yaml"
    arguments = ["--config", str(config), "--data", str(folder), *small_settings(folder)]
    return walk(lambda: main(arguments), lambda frame: frame.f_code is transformers.Trainer.train.__code__)


def walk_align(folder: Path) -> list[Stop]:
    """Walk through `attncal align run` for a few pairs, with an aligner that counts."""
    from hf_attncal.commands import main

    write_text_files(folder)
    text = [f"--source={folder / 'train.en'}", f"--target={folder / 'train.de'}"]
    model = str(folder / "aligner")
    made = main(["-q", "align", "train", *text, f"--output={model}", "--config=hmm", "tokenizer.vocab_size=40"])
    if made:
        raise RuntimeError("the aligner could not be trained.")
    few = [f"--source={folder / 'val.en'}", f"--target={folder / 'val.de'}"]
    return walk(lambda: main(["align", "run", model, *few, f"--output={folder / 'links'}"]))


def walk_analyze(folder: Path) -> list[Stop]:
    """Walk through `attncal analyze` for a few pairs, with a translation model, to its first chart."""
    from hf_attncal.commands import main

    write_text_files(folder)
    config = str(ROOT / "configs" / "translation" / "multi30k_gated.yaml")
    command = ["-q", "train", f"--config={config}", f"--output={folder / 'model'}", f"data.root={folder}"]
    if main([*command, *small_settings(folder)]):
        raise RuntimeError("the model could not be trained.")
    few = [f"--source={folder / 'val.en'}", f"--target={folder / 'val.de'}"]
    command = ["analyze", str(folder / "model"), *few, f"--report={folder / 'page.html'}"]
    return walk(lambda: main(command), lambda frame: frame.f_code is Figure.__init__.__code__)


WALKS = {"training": walk_training, "align": walk_align, "analyze": walk_analyze}


def main(arguments: list[str] | None = None) -> None:
    """Print a walk."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("walk", choices=WALKS)
    options = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        stops = WALKS[options.walk](Path(folder))
    for stop in stops:
        print(f"{stop.file}: {stop.function}")
    print(f"{options.walk}: {len(stops)} functions in {len({stop.file for stop in stops})} files")


if __name__ == "__main__":
    main()
