"""`attncal translate`: one line out for each line in, with scores, links and verdicts where they are asked for."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least
from hf_attncal.io.streams import LONGEST_LINE, check_text

from .kinds import STANDARD, Input, Kind, Loaded, Output, Path, Values

if TYPE_CHECKING:
    from hf_attncal.inference.answers import Answer

GROUPS = {
    "Word links of each translation with its source": ("alignments", "aligner"),
    "What each translation left out and made up": ("check",),
    "Search": ("beams", "generation", "too_long"),
}
_BATCH = 32  # lines


def translate(
    model: Loaded,
    source: Input = None,
    *,
    output: Output = None,
    format: Literal["text", "json"] = "text",
    scores: bool = False,
    alignments: Annotated[Path | bool | None, Kind("FILE", written="file")] = None,
    aligner: Loaded | None = None,
    check: Loaded | None = None,
    beams: int = 4,
    generation: Values = None,
    too_long: Literal["error", "truncate"] = "error",
    running: Running = Running(),
) -> "list[str] | list[Answer] | None":
    """Translate text, line by line.

    Exactly one line out for each line in, in the same order, written as the input arrives. An empty line gives an
    empty line.

    Examples:
        attncal translate MODEL < source.txt > translations.txt
        attncal translate MODEL --source source.txt --output translations.txt --alignments links.align
        attncal translate MODEL --source source.txt --beams 8 length_penalty=1.2 max_new_tokens=200

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter; in Python also (model, tokenizer)
        source: text, one sentence a line; plain, .gz, .xz or .zst; without it, standard input
        output: written as FILE.partial and renamed when it is complete, compressed as its name says; without it,
            standard output
        format: json: one object a line, with source, translation, score, tokens, their scores, and the alignment and
            the verdict where they are asked for
        scores: write `score TAB translation`; the score is the log-probability / length ** length_penalty
        alignments: write the links to FILE, `i-j i-j` for each line, counted from 0; - for json, which has them
            itself; without it, none
        aligner: folder or Hub name of a word aligner that makes the links; without it, the attention of MODEL that
            `attncal align select` chose
        check: folder or Hub name of a word aligner for which `attncal check` has learned what good pairs look like:
            before each translation stands what is flagged, or `-`, and a TAB; json has the whole verdict; without it,
            nothing is checked
        beams: beam size; 1 is greedy
        generation: settings of transformers' generate(), anywhere on the line: length_penalty=1.2, max_new_tokens=200
            (without it, twice the longest source of a batch plus 10), no_repeat_ngram_size=3, prefix="to German: "
        too_long: what to do with a line of more tokens than the model has positions, or of more bytes than
            --longest-line
        running: how it runs

    Returns:
        In Python, without `output`: the lines that the command writes, or with `format="json"` an `Answer` for each:
        `text`, `score`, `alignment`, `verdict` and what else it was made of.

    Raises:
        CommandError: options that do not go together, a model that cannot be loaded, or a line that cannot be
            translated; all lines before it are written.
    """
    aligned = aligner is not None or alignments not in (None, False)
    links = None if isinstance(alignments, bool) or alignments == STANDARD else alignments
    if aligned and links is None and format == "text":
        raise CommandError("Links need a file beside the text: give --alignments FILE, or --format json.")
    if aligned and aligner is None and too_long == "truncate":
        raise CommandError(
            "With --too-long truncate, links need a word aligner (--aligner): the attention of MODEL cannot align a "
            "line that it does not read to its end."
        )
    at_least("--beams", beams, 1)
    from hf_attncal.inference.search import generation_settings, texts_to_try

    settings = generation_settings(generation)
    text = check_text(source, {"--output": output, "--alignments": links})
    from hf_attncal.inference.encoder_decoders import load_model
    from hf_attncal.inference.opening import check_loadable, fetched

    check_loadable(aligner, check)
    name = fetched(model, running)
    loaded = load_model(name, running, beams)
    beside = None if loaded is model else getattr(loaded[0], "of_model", name)  # of which its links were chosen
    from hf_attncal.alignment.aligner_opening import aligner_beside
    from hf_attncal.checking.checker import open_checker
    from hf_attncal.data.languages import sample
    from hf_attncal.inference.answers import Form, answer_text, try_answers
    from hf_attncal.inference.translation import translating

    others = replace(running, revision=None, languages=None)
    reading: dict[str, Any] = {"batch_size": running.batch_size or _BATCH, "too_long": too_long}
    work = translating(
        loaded[0],
        loaded[1],
        aligner=aligner_beside(aligner, others, beside, loaded, format == "text") if aligned else None,
        checker=None if check is None else open_checker(check, others),
        num_beams=beams,
        scores=scores or format == "json",
        **reading,
        **settings,
    )
    try_answers(work, beside or "the model", [sample(loaded[1]) for _ in texts_to_try(settings)])
    reading |= {"longest_line": running.longest_line or LONGEST_LINE, "progress": running.progress}
    return answer_text(loaded, text, work, Form("translation", format, scores), output=output, links=links, **reading)
