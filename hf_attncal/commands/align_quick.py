"""`attncal align quick`: align a text by its own word counts."""

from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range, user_errors

from .kinds import Counting, Encoder, LinkFormat, Merging, Output, Pairs, Text, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.links import WordAlignment

GROUPS = {"Links": ("tokenize", "words", "threshold", "symmetrize", "least_probability")}


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
    least_probability: float | None = None,
    encoder: Encoder = None,
    running: Counting = Running(),
) -> "list[WordAlignment] | None":
    """Align the words of two files without a trained aligner.

    The words are aligned by counting which words occur together in this text. More text gives better links; below some
    thousand pairs, add --encoder. The counts are not saved; `attncal align train` saves them. The output has the
    format of `attncal align run`.

    Examples:
        attncal align quick --source text.en --target text.de --output links.align
        attncal align quick --source new.en --target new.de --with-source known.en --with-target known.de
        attncal align quick --source text.en --target text.de --encoder auto --output links.align
        attncal align quick --source raw.en --target raw.ja --tokenize --offsets --output spans.txt

        >>> alignments = hf_attncal.align_quick("text.en", "text.de")

    Args:
        source: source sentences, one per line, plain or compressed (.gz). If there is no --target, each
            line has both sides, `source ||| target` [default: standard input]
        target: target sentences, one per line [default: in the lines of --source]
        with_source: source sentences of another text in the same languages, which is counted too, but not aligned
            [default: none]
        with_target: target sentences of the other text, one per line [default: none]
        output: file for the links, compressed according to its name; written as FILE.partial and renamed when complete
            [default: standard output]
        format: pharaoh: `i-j`; words: `house=maison`; json: one object
            per line; html: a page with pictures. Details: attncal align run --help
        scores: add the score to each link, `i-j:score`
        offsets: write character positions, `start:end-start:end`, in Unicode code points from 0, end exclusive
        tokenize: split the text at Unicode word boundaries before it is aligned; for text of any script that is not
            tokenised. The links are between words separated by white space all the same; only with --offsets are they
            between the split words
        words: word separator: white-space is any Unicode white space; spaces is only spaces and tabs, for text in
            which a no-break space is part of a word
        threshold: minimum score of a link [default: 0.5]
        symmetrize: method to merge the links of both directions. harmonic takes the harmonic mean of both scores;
            forward takes only the direction that predicts the target [default: harmonic]
        least_probability: minimum probability that a link is right; needs --encoder, whose scores are probabilities
            [default: none]
        encoder: multilingual encoder (BERT, XLM-R, ...) that helps with little text: folder or Hub name, or auto for
            intfloat/multilingual-e5-small [default: none]
        running: threads, longest_line, too_long and progress

    Returns:
        An alignment for each pair if there is no `output`: `links`, `scores`, and the `score` of the pair. From
        Python, `source` may be a list of pairs, each side a text or a list of words.

    Raises:
        CommandError: files or options that cannot be used.
    """
    from hf_attncal.alignment.aligner_opening import check_encoder
    from hf_attncal.alignment.streaming import LinkStyle
    from hf_attncal.data.texts import PairText

    check_range("--threshold", threshold, 0, 1)
    style = LinkStyle(format, scores, offsets)
    if (with_source is None) != (with_target is None):
        raise CommandError("--with-source and --with-target go together. Give both files.")
    check_range("--least-probability", least_probability, 0, 1)
    if least_probability is not None and encoder is None:
        raise CommandError("--least-probability needs --encoder: scores of counts alone are no probabilities.")
    text = PairText(source, target, running.longest_line, running.too_long)
    beside = PairText([] if with_source is None else with_source, with_target, running.longest_line)
    text.check({"--output": output}, beside)
    check_encoder(encoder)

    import torch

    from hf_attncal.alignment.statistical import quick_aligner
    from hf_attncal.alignment.streaming import align_text

    if running.threads is not None:
        torch.set_num_threads(running.threads)
    counted = text.pairs()
    with user_errors():
        if encoder is not None:
            from hf_attncal.alignment.encoder_prior import EncoderPrior

            encoder = EncoderPrior.open(encoder, running)
        aligner = quick_aligner([*counted, *beside.pairs()], tokenize=tokenize, words=words, encoder=encoder)
    return align_text(
        aligner,
        PairText(counted),
        output,
        style,
        name="counts of this text",
        window=max(1, len(counted)),
        threshold=threshold,
        symmetrize=symmetrize,
        least_probability=least_probability,
        words=words,
        progress=running.progress,
    )
