"""`attncal align run`: the word alignment of each sentence pair."""

import os
from typing import TYPE_CHECKING, Any

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range

from .kinds import Aligning, Encoder, LinkFormat, Merging, Model, Output, Pairs, Text, Values, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.aligner import WordAligner
    from hf_attncal.alignment.links import WordAlignment

GROUPS = {
    "Links": ("tokenize", "words", "threshold", "symmetrize", "least_probability", "read"),
    "A text of another kind, or a large one": ("adapt", "encoder", "shard"),
}


def align(
    model: Model | "WordAligner",
    /,
    source: Pairs = None,
    target: Text | None = None,
    *,
    output: Output = None,
    format: LinkFormat = "pharaoh",
    scores: bool = False,
    offsets: bool = False,
    tokenize: bool | None = None,
    words: WordLimits = "white-space",
    threshold: float | None = None,
    symmetrize: Merging | None = None,
    least_probability: float | None = None,
    read: Values = None,
    adapt: bool = False,
    encoder: Encoder = None,
    shard: str | None = None,
    running: Aligning = Running(),
) -> "list[WordAlignment] | None":
    """Align the words of sentence pairs.

    The pairs are two files, or lines `source ||| target` of one file or of standard input. Each input line gives one
    output line, in the same order. Links are `i-j`: source word i is aligned with target word j, counted from 0.
    Words are separated by white space; with --offsets, links are character positions. A pair with an empty side has
    no links. A sentence longer than the model's limit is read in overlapping windows.

    Examples:
        attncal align run deen --source text.de --target text.en --output pairs.html --format html
        attncal align run MODEL --source text.en --target text.de --output links.align
        echo 'the house ||| das Haus' | attncal align run MODEL --scores
        attncal align run MODEL --source text.ja.gz --target text.en.gz --tokenize --offsets --output links.gz
        attncal align run MODEL --source text.en --target text.de --shard 3/20 --output 'links.{}.gz'
        attncal align run MODEL --source text.en --target text.de --read layer=3

        >>> alignments = hf_attncal.align("deen", ["das alte Haus"], ["the old house"])

    Args:
        model: deen or ende (German and English, in the package), or folder or Hub name of a word aligner or an
            encoder-decoder
        source: source sentences, one per line, plain or compressed (.gz). If there is no --target, each
            line has both sides, `source ||| target` [default: standard input]
        target: target sentences, one per line [default: in the lines of --source]
        output: file for the links, compressed according to its name; written as FILE.partial and renamed when complete
            [default: standard output]
        format: pharaoh: `i-j`; words: the words of each link, `house=maison` (`=` in a word is written `\\=`, and `\\`
            `\\\\`); json: one object per line with words,
            links, scores, NULL probabilities and the score of the pair; html: one page with a picture of each pair
        scores: add the score to each link, `i-j:score`; the probability that the link is right if the aligner is
            calibrated
        offsets: write character positions, `start:end-start:end`, in Unicode code points from 0, end exclusive, of
            each side without the white space around it
        tokenize: split the text at Unicode word boundaries before it is aligned; for text of any script that is not
            tokenised. The links are between words separated by white space all the same; only with --offsets are they
            between the split words [default: as in training]
        words: word separator: white-space is any Unicode white space; spaces is only spaces and tabs, for text in
            which a no-break space is part of a word
        threshold: minimum score of a link before calibration [default: the model's]
        symmetrize: method to merge the links of both directions. harmonic takes the harmonic mean of both scores;
            forward takes only the direction that predicts the target [default: the model's]
        least_probability: minimum probability that a link is right; needs a calibrated aligner, or a statistical one
            with --encoder [default: none]
        read: cross-attention of an encoder-decoder to read: layer=3, heads=0,3, shift=false, weights=attention,
            contribution, uam or observer, mutual=true (both words prefer each other), source_prefix='>>deu<< '
            [default: as saved with the model]
        adapt: learn from the text while aligning it, in windows of 20,000 pairs: for a text unlike the training text;
            needs a statistical aligner
        encoder: multilingual encoder (BERT, XLM-R, ...) that helps a word aligner or translation model: folder or Hub
            name, or auto for intfloat/multilingual-e5-small [default: none]
        shard: I/N: align only part I of N. --output is a folder, or a name with {} for the number of the part. An
            existing part is refused. The parts joined in order are the output of one run, for which an encoder
            first reads the first lines of the text [default: all lines]
        running: device, batch size and limits of the model

    Returns:
        An alignment for each pair if there is no `output`: `links`, `scores`, and the `score` of the pair. From
        Python, `source` may be a list of pairs, or both sides lists of lines, and `model` a loaded `WordAligner`.

    Raises:
        CommandError: files, a model or options that cannot be used, or a line that cannot be read or aligned. The
            lines before it have been written.
    """
    from hf_attncal.alignment.aligner_opening import check_encoder
    from hf_attncal.alignment.aligner_settings import changes_of, open_to_align
    from hf_attncal.alignment.streaming import LinkStyle, align_text, batch_limits, learn_from_start, lines_at_once
    from hf_attncal.data.texts import PairText, part_of
    from hf_attncal.inference.opening import fetched

    links: dict[str, Any] = {"threshold": threshold, "symmetrize": symmetrize, "least_probability": least_probability}
    check_range("--threshold", threshold, 0, 1)
    check_range("--least-probability", least_probability, 0, 1)
    style = LinkStyle(format, scores, offsets)
    text = PairText(source, target, running.longest_line, running.too_long)
    changes = changes_of(read)
    if adapt and encoder is not None:
        raise CommandError(
            "--adapt and --encoder cannot go together. Use --encoder only, or count the text with it (`attncal align "
            "quick --encoder`)."
        )
    window, part = lines_at_once(running.batch_size, adapt), None
    if shard is not None:
        if adapt or format == "html":
            raise CommandError(
                "--shard cannot go with --adapt or --format html, which need the whole text. Leave one out."
            )
        part = part_of(shard, None if output is None else os.fspath(output), text, window)
        output = part.path
    elif output is not None and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise CommandError("Several processes cannot write one output. Give each its own part with --shard.")
    else:
        text.check({"--output": output})
    if isinstance(model, str | os.PathLike):
        model = fetched(os.fspath(model), running)
    check_encoder(encoder)
    aligner = open_to_align(model, running, read=changes, adapt=adapt, encoder=encoder, **links)
    options = batch_limits(running.batch_size) | links | {"tokenize": tokenize, "words": words}
    if part is not None and part.lines.start > 0 and encoder is not None:
        learn_from_start(aligner, text, window, **options)
    return align_text(
        aligner,
        text,
        output,
        style,
        name=str(model),
        window=window,
        part=part,
        adapt=adapt,
        progress=running.progress,
        **options,
    )
