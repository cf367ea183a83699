"""`attncal align run`: the word alignment of each sentence pair."""

import os
from typing import TYPE_CHECKING, Any

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range
from hf_attncal.io.gate import claim_folder

from .kinds import Encoder, LinkFormat, Merging, Model, ModelFolder, Output, Pairs, Text, Values, WordLimits

if TYPE_CHECKING:
    from hf_attncal.alignment.aligner import WordAligner
    from hf_attncal.alignment.merging import WordAlignment

GROUPS = {
    "Links": ("tokenize", "words", "threshold", "symmetrize", "least_probability", "read"),
    "A text of another kind, or a large one": ("adapt", "encoder", "save_adapted", "shard"),
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
    save_adapted: ModelFolder | None = None,
    shard: str | None = None,
    running: Running = Running(),
) -> "list[WordAlignment] | None":
    """Align the words of sentence pairs.

    The pairs are two files, or lines `source ||| target` of one file or of standard input. Each line in gives exactly
    one line out, in the same order, written as the input arrives. Links are `i-j`: source word i belongs to target
    word j, counted from 0. Words are what white space parts; with --offsets, links name characters. A pair with an
    empty side has no links. A sentence longer than the model can read is read in overlapping windows, never cut.

    Examples:
        attncal align run deen --source text.de --target text.en --output pairs.html --format html
        attncal align run MODEL --source text.en --target text.de --output links.align
        echo 'the house ||| das Haus' | attncal align run MODEL --scores
        attncal align run MODEL --source text.ja.zst --target text.en.zst --tokenize --offsets --output links.zst
        attncal align run MODEL --source text.en --target text.de --shard 3/20 --output 'links.{}.gz'
        attncal align run MODEL --source text.en --target text.de --read layer=3

        >>> alignments = hf_attncal.align("deen", ["das alte Haus"], ["the old house"])

    Args:
        model: deen or ende (German and English, in the package); or folder or Hub name of a word aligner or an
            encoder-decoder
        source: source sentences, one a line, plain or compressed (.gz, .xz, .zst); without --target, lines
            `source ||| target`; without it, standard input
        target: target sentences, as many lines; without it, they stand in the lines of --source
        output: the file for the links, written as FILE.partial and renamed when it is complete, compressed as its name
            says; without it, standard output
        format: words: the words of each link, `house=maison` (in words `=` is written `\\=`, and `\\` is `\\\\`);
            opustrainer: source, target and links, parted by tabs; json: an object a line, with words, links, scores,
            the probability of each word that it has no partner, and the score of the pair; html: one page with a
            picture of each pair
        scores: pharaoh, words: write `i-j:score`, with four decimals; of a calibrated aligner, the probability that
            the link is right
        offsets: write the characters of the words, `start:end-start:end`, Unicode code points from 0, without those
            at end, in each side without the white space around it; json: beside the words
        tokenize: cut raw text of any script into words first, by Unicode's word boundaries; without it, as the aligner
            was trained. Links are still between words that white space parts, except with --offsets
        words: what parts words: any white space of Unicode, or spaces and tabs alone, so that a no-break space shifts
            no index
        threshold: a link must score above this, as the model has scores, calibrated or not; without it, the model's
            own threshold
        symmetrize: how the two directions are merged; without it, the model's own way
        least_probability: leave out links that are less likely to be right than this; needs a calibrated aligner;
            without it, none is left out
        read: what to read of an encoder-decoder: layer=3, heads=0,3, shift=false, weights=attention, contribution or
            uam, source_prefix='>>deu<< '; without it, what was saved with the model
        adapt: learn from the text while it is aligned, in windows of 20,000 pairs: for a text unlike the one that the
            model has learned from; a known text stays as it is. The model must count. With an encoder, count the text
            instead: align quick --encoder auto
        encoder: a multilingual encoder (BERT, XLM-R, ...) that helps a word aligner or a translation model: a folder
            or Hub name, or auto for intfloat/multilingual-e5-small; without it, none
        save_adapted: keep what was learned as a new aligner in this folder; without it, it is forgotten
        shard: I/N: align part I of N alone. --output is a folder, or a name with {} for the number of the part. A part
            that is there already is refused; joined in order, the parts are what one run writes; without it, all
            lines are aligned
        running: how the model runs

    Returns:
        An alignment for each pair, if there is no `output`: `links`, `scores`, and the `score` of the pair. From
        Python, `source` may be a list of pairs, or both sides lists of lines, and `model` a loaded `WordAligner`.

    Raises:
        CommandError: files, a model or options that cannot be used, or a line that cannot be read or aligned; the
            lines before it have been written.
    """
    from hf_attncal.alignment.aligner_opening import changes_of, check_encoder, open_to_align
    from hf_attncal.alignment.streaming import LinkStyle, align_text, batch_limits, lines_at_once
    from hf_attncal.data.texts import PairText, part_of
    from hf_attncal.inference.opening import fetched

    links: dict[str, Any] = {"threshold": threshold, "symmetrize": symmetrize, "least_probability": least_probability}
    check_range("--threshold", threshold, 0, 1)
    check_range("--least-probability", least_probability, 0, 1)
    style, text = LinkStyle(format, scores, offsets), PairText(source, target, running.longest_line)
    changes = changes_of(read)
    if adapt and encoder is not None:
        raise CommandError(
            "--adapt goes without --encoder: align with the encoder alone, or count the text with it "
            "(`attncal align quick --encoder`)."
        )
    if save_adapted is not None:
        if not adapt:
            raise CommandError("--save-adapted needs --adapt, which learns what is saved.")
        from hf_attncal.alignment.aligner_opening import ADAPTED

        claim_folder(save_adapted, ADAPTED, "--save-adapted")
    window, part = lines_at_once(running.batch_size, adapt), None
    if shard is not None:
        if adapt or encoder is not None or format == "html":
            raise CommandError("--adapt, --encoder and --format html need the whole text: leave them or --shard out.")
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
    alignments = align_text(
        aligner,
        text,
        output,
        style,
        name=str(model),
        window=window,
        part=part,
        adapt=adapt,
        progress=running.progress,
        tokenize=tokenize,
        words=words,
        **batch_limits(running.batch_size),
        **links,
    )
    if save_adapted is not None:
        from hf_attncal.alignment.aligner_opening import save_aligner

        save_aligner(aligner, save_adapted)
    return alignments
