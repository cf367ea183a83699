"""`attncal align run`: the word alignment of each sentence pair."""

import argparse
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from hf_attncal.alignment.opening import open_aligner, try_aligner
from hf_attncal.commands.common import running_of
from hf_attncal.data.shards import Counts, Shard, check_parts, part_of
from hf_attncal.data.streams import (
    BATCHES_PER_WINDOW,
    PairWindow,
    check_files,
    check_folder,
    groups_by_size,
    input_lines,
    joined_pairs,
    json_line,
    line_error,
    open_file,
    output_lines,
    parallel_lines,
    progress_bar,
    write_lines,
)
from hf_attncal.errors import CommandError
from hf_attncal.inference.opening import load_errors
from hf_attncal.messages import LOG

from .common import (
    TEXT_OPTIONS,
    add_file_options,
    add_model_options,
    add_pair_files,
    add_text_options,
    between,
    positive,
)

_TOKENS_PER_PAIR = 64
# Options that may differ between the parts of a corpus: what is known otherwise, and what links do not depend on.
_FREE = {"model", "input", "source", "target", "output", "shard", "threads", "progress", "trust_remote_code"}
_FREE |= {"run", "verbose", "quiet", "debug"}
# So many have to have a low score before anything is said of it.
_PAIRS_TO_JUDGE = 100
# Pairs from the beginning whose scores are compared with those of source and target exchanged; fewer say nothing.
_PAIRS_TO_EXCHANGE, _FEWEST_TO_EXCHANGE = 100, 20
# Of the text that probabilities were learned from, 5 % of the pairs are a little far from it.
_UNLIKE = 0.25
# Characters of the source times those of the target, of pairs that are aligned before any is written: links at most.
_CELLS_AT_ONCE = 1 << 26


def add_run(actions: argparse._SubParsersAction) -> None:
    """Add the action `run`."""
    parser = actions.add_parser(
        "run",
        help="write the word alignment of each sentence pair",
        description="Align the words of sentence pairs: lines `source ||| target` on standard input, or two files. "
        "Exactly one line out for each line in, in the same order, written as the input arrives. Links are `i-j`, "
        "source word i and target word j, counted from 0; words are what white space parts, or, with --offsets, their "
        "characters. A pair with an empty side has no links. Sentences longer than the model are read in overlapping "
        "windows, never cut.",
        epilog="examples:\n"
        "  attncal align run MODEL --source text.en --target text.de --output links.align\n"
        "  echo 'the house ||| das Haus' | attncal align run MODEL --scores\n"
        "  attncal align run MODEL --source text.ja.zst --target text.en.zst --tokenize --offsets --output links.zst\n"
        "  attncal align run MODEL --source text.en --target text.de --shard 3/20 --output 'links.{}.gz'",
    )
    files = add_file_options(parser, "lines `source ||| target`")
    add_pair_files(files, without="--input")
    links = add_linking(parser, files)
    files.add_argument(
        "--shard",
        type=Shard.parse,
        metavar="I/N",
        help="part i of n alone: --output is a folder, or a name with {} for the number of the part. A part that is "
        "there is skipped; joined in order, parts are what one run writes; without it, all lines",
    )
    links.add_argument(
        "--adapt",
        action="store_true",
        help="learn from the text, too, while it is aligned, in windows of 20,000 pairs: for a text that is not like "
        "the one that MODEL has learned from; a known text stays as it is. MODEL must count, or have counts in its "
        "folder hmm",
    )
    links.add_argument(
        "--save-adapted", metavar="FOLDER", help="keep what was learned, as a new aligner; without it, for this run"
    )
    links.add_argument(
        "--least-probability",
        type=between(0, 1),
        help="leave out links that are less likely to be right; MODEL must be calibrated; without it, none",
    )
    links.add_argument(
        "--raw-scores", action="store_true", help="scores as the model has them, though it was calibrated"
    )
    reading = parser.add_argument_group(
        "what to read of an encoder-decoder or an encoder; without them, what was saved with it"
    )
    reading.add_argument(
        "--layer",
        type=int,
        help="decoder layer from 0; of states, 0 is what enters the first layer; a negative one counts from the top",
    )
    reading.add_argument("--heads", type=_heads, metavar="H,H", help="heads to average, from 0; without it, all")
    reading.add_argument(
        "--shift",
        action=argparse.BooleanOptionalAction,
        help="align a target token by the step that reads it, or by the step that predicts it",
    )
    reading.add_argument(
        "--weights",
        choices=("attention", "contribution", "uam", "states"),
        help="read attention, what each source word contributes (calibrated models and adapters), the alignment "
        "module of a model trained with `uam`, which is what is read of such a model unless --layer is given, or the "
        "states of the encoder, which is what is read of a model that is only an encoder",
    )
    add_text_options(reading)
    running = add_model_options(
        parser, "folder or Hub name of a word aligner, an encoder-decoder or an encoder (BERT, XLM-R, ...)", lines=True
    )
    running.add_argument("--batch-size", type=positive, default=256, help="most sentence pairs at once")
    running.add_argument(
        "--batch-tokens", type=positive, default=4096, help="most tokens at once, both sides and padding included"
    )
    parser.set_defaults(run=_run_align)


def add_linking(
    parser: argparse.ArgumentParser, files: argparse._ArgumentGroup, own: str = "the checkpoint's own"
) -> argparse._ArgumentGroup:
    """Add what is linked and how it is written; return the group "links".

    Args:
        parser: parser of the command.
        files: its group "input and output".
        own: the rule for links without an option.
    """
    from hf_attncal.models.limits import SYMMETRIZATIONS

    files.add_argument(
        "--format",
        choices=("pharaoh", "words", "opustrainer", "json", "html"),
        default="pharaoh",
        help="words: the words of each link, `house=maison` (in words `=` is written `\\=`, and `\\` is `\\\\`); "
        "opustrainer: source, target and links, parted by tabs; json: one object a line, with words, links, scores, "
        "NULL probabilities and the score of the pair; html: one page with a picture of each pair, which needs no "
        "other file",
    )
    files.add_argument(
        "--scores",
        action="store_true",
        help="pharaoh, words: write `i-j:score`, with four decimals; of a calibrated aligner (`attncal align "
        "calibrate`), the probability that the link is right",
    )
    files.add_argument(
        "--null",
        action="store_true",
        help="pharaoh, words: add two columns, parted by tabs: for each source word, then for each target word, the "
        "probability that it has no partner",
    )
    files.add_argument(
        "--offsets",
        action="store_true",
        help="write the characters of the words, `start:end-start:end`, Unicode code points from 0, without those at "
        "end; of --input, in each side without the white space around it; json: beside the words",
    )
    links = parser.add_argument_group("links")
    links.add_argument(
        "--tokenize",
        action=argparse.BooleanOptionalAction,
        help="cut raw text of any script into words first, by Unicode's word boundaries; without it, as the aligner "
        "was trained. Links are between words that white space parts all the same, but with --offsets",
    )
    links.add_argument(
        "--words",
        choices=("white-space", "spaces"),
        default="white-space",
        help="what parts words: any white space of Unicode, or spaces and tabs alone, so that a no-break space shifts "
        "no index",
    )
    links.add_argument(
        "--threshold",
        type=between(0, 1),
        metavar="TAU",
        help=f"a link must score above this, as the model has scores, calibrated or not; without it, {own}",
    )
    links.add_argument(
        "--symmetrize",
        choices=SYMMETRIZATIONS,
        metavar="NAME",
        help=f"how two directions are merged: {', '.join(SYMMETRIZATIONS)}; without it, {own}",
    )
    return links


def _heads(text: str) -> tuple[int, ...]:
    return tuple(int(head) for head in text.split(","))


def _run_align(options: argparse.Namespace) -> None:
    inputs = _check_options(options)
    window = max(1, int(BATCHES_PER_WINDOW * min(options.batch_size, options.batch_tokens / _TOKENS_PER_PAIR)))
    if options.adapt:
        from hf_attncal.alignment.adapting import WINDOW as window
    part, counts = None, Counts()
    if options.shard is not None:
        part = part_of(options.shard, options.output, inputs, window, _settings(options))
        if part is None:
            return
    aligner = load_aligner(options)
    before = 0 if part is None else part.lines.start
    opened = partial(open_file, mode="rb") if part is None else part.open
    with ExitStack() as stack:
        target = stack.enter_context(output_lines(options.output) if part is None else part.output(counts))
        if options.format == "html":
            stack.enter_context(page(target, options.model))
        if options.source is None and part is None:
            file, window, name = stack.enter_context(input_lines(options.input, window))
            pairs = joined_pairs(file, window, name, options.longest_line)
        else:
            files = [stack.enter_context(opened(name)) for name in inputs]
            if options.source is None:
                pairs = joined_pairs(*files, window, *inputs, options.longest_line, before)
            else:
                pairs = parallel_lines(files, window, inputs, options.longest_line, before)
        align_stream(aligner, pairs, target, options, counts, before)
    if options.save_adapted is not None:
        save_aligner(aligner, options.save_adapted)


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    """Return the version, the model and the options that links depend on."""
    from hf_attncal import __version__
    from hf_attncal.alignment.probabilities import PROBABILITIES_FILE
    from hf_attncal.alignment.sources import SETTINGS_FILE
    from hf_attncal.files import sha256
    from hf_attncal.inference.files import file_beside
    from hf_attncal.inference.revision import revision_of

    with load_errors(options.model):
        revision = revision_of(options.model)
        beside = {file: file_beside(options.model, file) for file in (SETTINGS_FILE, PROBABILITIES_FILE)}
    hashes = {file: None if path is None else f"sha256:{sha256(path)}" for file, path in beside.items()}
    values = {f"--{name.replace('_', '-')}": value for name, value in vars(options).items() if name not in _FREE}
    return {"hf_attncal": __version__, "model": revision, **hashes, **values}


def _check_options(options: argparse.Namespace) -> list[str]:
    """Refuse files and options that cannot be used, before the model is loaded; return the files that are read."""
    if (options.source is None) != (options.target is None):
        raise CommandError("--source and --target go together: give both files, or lines `source ||| target`.")
    if options.source is not None and options.input is not None:
        raise CommandError("Give --input, or --source and --target, not all of them.")
    check_format(options)
    if options.save_adapted is not None:
        if not options.adapt:
            raise CommandError("--save-adapted needs --adapt, which learns what is saved.")
        check_folder(options.save_adapted, "--save-adapted")
    if options.adapt and options.shard is not None:
        raise CommandError(
            "--adapt learns from line to line, so parts of --shard would not be what one run writes. Adapt once "
            "(--save-adapted FOLDER), and align the parts with FOLDER."
        )
    inputs = [path for path in (options.input, options.source, options.target) if path is not None]
    if options.shard is None:
        processes = int(os.environ.get("WORLD_SIZE", 1))
        if processes > 1:
            raise CommandError(f"{processes} processes cannot write one output. Give each its own part with --shard.")
        check_files(inputs, {"--output": options.output})
        return inputs
    if options.format == "html":
        raise CommandError("--shard cannot write one page. Use another --format.")
    check_files(inputs, {})
    check_parts(options.output, inputs)
    return inputs


def check_format(options: argparse.Namespace) -> None:
    """Refuse --offsets with a format that has no place for them."""
    if options.offsets and options.format in ("words", "opustrainer", "html"):
        raise CommandError(f"--offsets has no place in --format {options.format}. Use pharaoh or json.")


def load_aligner(options: argparse.Namespace):
    """Load the `WordAligner` that the options ask for.

    Raises:
        CommandError: the checkpoint cannot be loaded or is of another kind, or the options do not suit it.
    """
    other = options.weights is not None  # than what is read by default, which need not be possible
    plain = not other and not options.adapt
    aligner = open_aligner(
        options.model, running_of(options), tried=not other, raw_scores=options.raw_scores, plain=plain
    )
    names = ("layer", "heads", "shift", "weights", *TEXT_OPTIONS)
    chosen = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    try:
        if chosen:
            aligner.choose(**chosen)
        # Options that do not suit the model shall not be blamed on the first line of the input.
        aligner.check(
            threshold=options.threshold,
            symmetrize=options.symmetrize,
            least_probability=options.least_probability,
            null=options.null,
        )
    except ValueError as error:
        raise CommandError(f"{options.model} cannot be used with these options: {error}") from error
    if other:
        try_aligner(options.model, aligner)
    return aligner


def align_stream(
    aligner,
    windows: Iterator[PairWindow],
    target: BinaryIO,
    options: argparse.Namespace,
    counts: Counts | None = None,
    before: int = 0,
) -> None:
    """Write the alignments of every window of pairs.

    Args:
        aligner: a `WordAligner`.
        windows: groups of pairs; with a group comes what is wrong with the line after it.
        target: gets a line for each pair, flushed after every window.
        options: the options of `attncal align run`.
        counts: to be told how much was written.
        before: number of lines before the first window.

    Raises:
        CommandError: a line that cannot be aligned. All lines before it have been written.
    """
    from hf_attncal.data.piecewise import until_failure

    align = partial(
        aligner.align,
        threshold=options.threshold,
        symmetrize=options.symmetrize,
        least_probability=options.least_probability,
        batch_size=options.batch_size,
        batch_tokens=options.batch_tokens,
        tokenize=options.tokenize,
        spans=options.offsets,
        words=options.words,
    )
    counts = counts or Counts()
    judge = _Judge(aligner, options)
    with progress_bar("aligned", options.progress) as bar:
        first = before + 1
        for pairs, error in windows:
            judge.see(pairs)
            if options.adapt and pairs:
                _adapt(aligner, pairs, options)
            for group in groups_by_size(pairs, _CELLS_AT_ONCE):
                alignments, failure = until_failure(align, group)
                lines = [_line(number, alignment, options) for number, alignment in enumerate(alignments, first)]
                write_lines(target, lines)
                counts.lines += len(alignments)
                counts.links += sum(len(alignment.links) for alignment in alignments)
                judge.add(alignments)
                if failure is not None:
                    raise line_error(first + len(alignments), "cannot be aligned", failure) from failure
                bar.update(len(group))
                first += len(group)
            if error is not None:
                raise error
    judge.warn()


class _Judge:
    """What is said of a text: it scores low, or source and target are exchanged.

    Args:
        aligner: a `WordAligner`. options: those of `attncal align run`.

    """

    def __init__(self, aligner, options: argparse.Namespace):
        self.aligner, self.options = aligner, options
        self._scored, self._total, self._unlike = 0, 0.0, 0
        self._sample: list[tuple[str, str]] = []
        self._exchanged: tuple[float, float] | None = None

    def see(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Take note of the pairs that are aligned next."""
        new = not self._sample
        self._sample += pairs[: _PAIRS_TO_EXCHANGE - len(self._sample)]
        if new and self.options.adapt:
            self._compare()  # once it has read them, it knows the text either way

    def add(self, alignments: Sequence) -> None:
        """Take note of pairs that were aligned."""
        known = [alignment.score for alignment in alignments if alignment.score is not None]
        self._scored, self._total = self._scored + len(known), self._total + sum(known)
        self._unlike += sum(alignment.shift > 0 for alignment in alignments)

    def warn(self) -> None:
        """Warn of what was found."""
        if not self._scored:
            return
        from hf_attncal.alignment.mask_align import MaskAlignSource
        from hf_attncal.alignment.quality import GOOD_SCORE, LEAST_SCORE

        options = self.options
        told = options.scores or options.format == "json" or options.least_probability is not None
        if told and self._scored >= _FEWEST_TO_EXCHANGE and self._unlike > _UNLIKE * self._scored:
            warnings.warn(
                f"{self._unlike / self._scored:.0%} of the pairs are unlike the text that the probabilities of links "
                "were learned from: the aligner knows fewer of their words. Their probabilities are at most the "
                "scores of the model, and may still be too high. Annotate some dozens of pairs of this text and "
                "calibrate again (`attncal align calibrate`).",
                stacklevel=3,
            )
        mean, two_ways = self._total / self._scored, isinstance(self.aligner.source, MaskAlignSource)
        if mean < GOOD_SCORE and not self.options.adapt:
            self._compare()
        if self._exchanged:
            warnings.warn(
                "source and target are probably exchanged: the mean score of a pair is {:.2f}, and {:.2f} the other "
                "way round. Give the files in the order that the aligner has learned.".format(*self._exchanged),
                stacklevel=3,
            )
        elif self._scored >= _PAIRS_TO_JUDGE and mean < LEAST_SCORE and two_ways:
            warnings.warn(
                f"the links are probably bad: the mean score of a pair is {mean:.2f}, that of a good aligner above "
                "0.6. Either it does not know this text: let it learn from it (--adapt), or train it with this text "
                "among its own (`attncal align train --source TRAIN THIS --target TRAIN THIS`). Or the lines do not "
                "belong together.",
                stacklevel=3,
            )

    def _compare(self) -> None:
        """Compare the scores of the first pairs with those that they have exchanged."""
        from hf_attncal.alignment.mask_align import MaskAlignSource
        from hf_attncal.alignment.quality import exchanged_scores

        if len(self._sample) >= _FEWEST_TO_EXCHANGE and isinstance(self.aligner.source, MaskAlignSource):
            options = {"tokenize": self.options.tokenize, "words": self.options.words}
            self._exchanged = exchanged_scores(self.aligner, self._sample, **options)


def _adapt(aligner, pairs: Sequence[tuple[str, str]], options: argparse.Namespace) -> None:
    """Adapt the aligner to pairs, and say how far."""
    try:
        found = aligner.adapt(pairs, tokenize=options.tokenize, words=options.words)
    except ValueError as error:
        raise CommandError(f"{options.model} cannot adapt: {error}") from error
    what = f"{found.unknown:.0%} of the tokens of {found.pairs} pairs are new"
    LOG.info(
        "%s: %s", what, f"learned from them with a weight of {found.weight:.2f}" if found.weight else "a known text"
    )
    if found.replaced:
        warnings.warn(f"{what}: the counts in the folder hmm align in place of the network.", stacklevel=2)


def save_aligner(aligner, folder: str) -> None:
    """Save model and tokenizer in a folder, each file whole."""
    from hf_attncal.files import fill_folder

    def save(staged: Path) -> None:
        aligner.model.save_pretrained(staged)
        aligner.tokenizer.save_pretrained(staged)

    Path(folder).mkdir(parents=True, exist_ok=True)
    fill_folder(Path(folder), save)


@contextmanager
def page(target: BinaryIO, aligner: str) -> Iterator[None]:
    """Write the head of a page, and its end only if nothing went wrong."""
    from hf_attncal.alignment.pictures import PAGE_FOOT, page_head

    write_lines(target, [page_head(aligner)])
    yield
    write_lines(target, [PAGE_FOOT])


def _line(number: int, alignment, options: argparse.Namespace) -> str:
    """Return the line to write for the pair in line `number` of the input, from 1."""
    if options.format == "html":
        from hf_attncal.alignment.pictures import page_pair

        return page_pair(number, alignment)
    if options.format == "json":
        return json_line(alignment.to_dict())
    write = alignment.offsets if options.offsets else alignment.pharaoh
    columns = [(alignment.words if options.format == "words" else write)(scores=options.scores)]
    if options.format == "opustrainer":
        columns = [" ".join(alignment.source), " ".join(alignment.target), *columns]
    if options.null:
        columns += [
            " ".join(f"{probability:.4f}" for probability in side)
            for side in (alignment.source_null, alignment.target_null)
        ]
    return "\t".join(columns)
