"""Spellings of an earlier version, of the commands that train: what each is now, and that it is said."""

import shlex
import warnings

import pytest

from hf_attncal.commands.app import UsageError, call_of
from hf_attncal.commands.old import GATHERED, JOINED, OLD, respelled

TRAINING = [
    ("--preset base", "--config base"),
    ("--config mine.yaml --preset small", "preset=small --config mine.yaml"),
    ("--steps 5 --epochs=2.5", "training.max_steps=5 training.num_train_epochs=2.5"),
    ("training.max_steps=3 --steps 5", "training.max_steps=5 training.max_steps=3"),  # a setting goes before an option
    ("--seed 7 --license cc-by-4.0 --lowercase", "training.seed=7 card.license=cc-by-4.0 data.lowercase=true"),
    ("--license no", """'card.license="no"'"""),
    ("--guide links", "--links links"),
    ("--resume --allow-changes", "resume=changed --resume"),
    ("--dev-source a --dev-target=b --dev-gold c", "--dev a b c"),
    ("--test-target b --test-source=a", "--test a b"),
    ("--test-gold c", "--test c"),
]
START = [("--tokenizer 'a b' --init-from c/d", """'tokenizer.pretrained="a b"' model.init_from=c/d""")]
LINES = [
    *((command, *line) for command in ("train", "adapt", "align train", "align tune") for line in TRAINING),
    *((command, *line) for command in ("train", "align train") for line in START),
    ("train", "--text a b --dev-text c --test-text d", "--source a b --dev c --test d"),
    ("train", "--task summarization --copy --backbone marian", "--model summarizer+marian+copy"),
    ("train", "--task=translation --streams=2", "--model translator+discrete-2"),
    ("train", "--calibration gated --leaky --gumbel", "--model gumbel+gated+leaky"),
    ("train", "--guided --model marian", "--model marian+guided"),
    ("adapt", "--calibration fixed --leaky --guided", "--calibration fixed+leaky+guided"),
    ("adapt", "--leaky", "--calibration leaky"),
    ("align train", "--tokenize --no-fold", "data.raw_text=true data.fold=false"),
    ("align train", "--fold", "data.fold=true"),
    ("align tune", "--layer 8 --links self", "states.layer=8 --links self"),
    ("align tune", "--source-prefix 'to de: '", """'states.source_prefix="to de: "'"""),
    ("align tune", "--source-language en_XX", "states.source_language=en_XX"),
    ("align tune", "--target-language no", """'states.target_language="no"'"""),
    ("align tune", "--target-prefix >>en<<", """'states.target_prefix=">>en<<"'"""),
]  # fmt: skip


def understood(command: str, line: str) -> tuple[list[str], str]:
    """The words of a command line in the new spelling, without those of the command, and all that is said of them."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        words = respelled(command, [*command.split(), *shlex.split(line)])
    size = len(command.split())
    assert words[:size] == command.split()
    return words[size:], " ".join(str(warning.message) for warning in told)


@pytest.mark.parametrize(("command", "old", "new"), LINES)
def test_an_old_spelling_is_the_new_one(command, old, new):
    words, _ = understood(command, old)
    assert words == shlex.split(new)


@pytest.mark.parametrize("command", ["train", "adapt", "align train", "align tune"])
def test_each_old_spelling_is_tried_and_said(command):
    options = {*OLD[command], *(name for names in JOINED[command].values() for name in names)}
    for new, names in GATHERED.get(command, {}).items():
        options |= names.keys() - {new}
    tried = {word.partition("=")[0]: old for name, old, _ in LINES if name == command for word in shlex.split(old)}
    assert options <= tried.keys()
    for option in options:
        _, told = understood(command, tried[option])
        assert f"{option} " in told or f"{option}:" in told


def test_files_of_which_one_is_missing_are_not_put_together():
    """The links would be taken for a target; the command line is refused then."""
    assert understood("train", "--dev-source a --dev-gold c") == (["--dev-source", "a", "--dev-gold", "c"], "")
    with pytest.raises(UsageError, match="--dev-source"):
        call_of(["train", "--dev-source", "a", "--dev-gold", "c"])


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("train", "--model marian+copy --dev a b training.seed=2"),
        ("adapt", "model --calibration gated+leaky --config small"),
    ],
)
def test_what_is_spelled_in_the_new_way_is_left_alone(command, line):
    assert understood(command, line) == (line.split(), "")
