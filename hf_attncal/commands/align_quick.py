"""`attncal align quick`: align a text by what it says itself."""

from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range, user_errors

from .kinds import Encoder, LinkFormat, Merging, Output, Pairs, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.merging import WordAlignment

GROUPS = {"Links": ("tokenize", "words", "threshold", "symmetrize")}


def align_quick(
    source: Pairs = None,
    target: Text | None = None,
    *,
    with_source: Text | None = None,
    with_target: Text | None = None,
    output: Output = None,
    format: LinkFormat = "pharaoh",
    scores: bool = False,
    offsets: bool = False,
    tokenize: bool = False,
    words: WordLimits = "white-space",
    threshold: float | None = None,
    symmetrize: Merging | None = None,
    encoder: Encoder = None,
    running: Running = Running(),
) -> "list[WordAlignment] | None":
    """Align two files without a model.

    Align the words of two files by counting which occur together, and nothing else: no model, no folder. What is
    learned is forgotten; `attncal align train` keeps it. Lines and links are those of `attncal align run`.

    Examples:
        attncal align quick --source text.en --target text.de --output links.align
        attncal align quick --source new.en --target new.de --with-source known.en --with-target known.de
        attncal align quick --source text.en --target text.de --encoder auto --output links.align
        attncal align quick --source raw.en --target raw.ja --tokenize --offsets --output spans.txt

        >>> alignments = hf_attncal.align_quick("text.en", "text.de")

    Args:
        source: source sentences, one a line, plain or compressed (.gz, .xz, .zst); without --target, lines
            `source ||| target`; without it, standard input
        target: target sentences, as many lines; without it, they stand in the lines of --source
        with_source: source sentences of other text in the two languages, which is counted and not aligned; without it,
            the text is alone
        with_target: the target sentences of that text, as many lines; without it, the same
        output: the file for the links, written as FILE.partial and renamed when it is complete, compressed as its name
            says; without it, standard output
        format: how links are written; attncal align run --help has what each is
        scores: pharaoh, words: write `i-j:score`, with four decimals
        offsets: write the characters of the words, `start:end-start:end`, Unicode code points from 0, without those
            at end; json: beside the words
        tokenize: cut raw text of any script into words first, by Unicode's word boundaries. Links are still between
            words that white space parts, except with --offsets
        words: what parts words: any white space of Unicode, or spaces and tabs alone, so that a no-break space shifts
            no index
        threshold: a link must score above this; without it, 0.5
        symmetrize: how the two directions are merged; without it, harmonic
        encoder: a multilingual encoder (BERT, XLM-R, ...) that helps where text is little: a folder or Hub name,
            or auto for intfloat/multilingual-e5-small; without it, none
        running: how it runs: threads, longest_line, progress, and the languages of an encoder that has codes for them

    Returns:
        An alignment for each pair, if there is no `output`: `links`, `scores`, and the `score` of the pair. From
        Python, `source` may be a list of pairs, each side a text or a list of words.

    Raises:
        CommandError: files or options that cannot be used.
    """
    from hf_attncal.alignment.aligner_opening import check_encoder
    from hf_attncal.alignment.streaming import LinkStyle
    from hf_attncal.data.texts import PairText

    running.takes("threads", "longest_line", "progress", "languages")
    check_range("--threshold", threshold, 0, 1)
    style = LinkStyle(format, scores, offsets)
    if (with_source is None) != (with_target is None):
        raise CommandError("--with-source and --with-target go together: give both files.")
    text = PairText(source, target, running.longest_line)
    beside = PairText([] if with_source is None else with_source, with_target, running.longest_line)
    text.check({"--output": output}, beside)
    check_encoder(encoder)

    import torch

    from hf_attncal.alignment.aligner_opening import open_encoder
    from hf_attncal.alignment.statistical import quick_aligner
    from hf_attncal.alignment.streaming import align_text

    if running.threads is not None:
        torch.set_num_threads(running.threads)
    counted = text.pairs()
    with user_errors():
        prior = open_encoder(encoder, running)
        aligner = quick_aligner([*counted, *beside.pairs()], tokenize=tokenize, words=words, encoder=prior)
    return align_text(
        aligner,
        PairText(counted),
        output,
        style,
        name="counts of this text",
        window=max(1, len(counted)),
        threshold=threshold,
        symmetrize=symmetrize,
        words=words,
        progress=running.progress,
    )
