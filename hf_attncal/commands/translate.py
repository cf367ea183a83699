"""`attncal translate`: write one translation per line, with scores and links if requested."""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range
from hf_attncal.io.streams import LONGEST_LINE, check_text

from .kinds import STANDARD, Input, Kind, Loaded, Output, Path, Translating, Values

if TYPE_CHECKING:
    from hf_attncal.inference.answers import Answer

GROUPS = {
    "Word links between source and translation": ("alignments", "aligner"),
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
    beams: int = 4,
    generation: Values = None,
    too_long: Literal["error", "truncate"] = "error",
    running: Translating = Running(),
) -> "list[str] | list[Answer] | None":
    """Translate text, line by line.

    Each line of input gives exactly one line of output, in the same order, written as the input arrives. An empty line
    gives an empty line.

    Examples:
        attncal translate MODEL source.txt > translations.txt
        attncal translate MODEL source.txt --output translations.txt --alignments links.align
        attncal translate MODEL --beams 8 length_penalty=1.2 max_new_tokens=200 < source.txt

        >>> translations = hf_attncal.translate("model", ["The house is old."], beams=4)

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter. In Python also (model, tokenizer).
        source: text, one sentence per line; plain or .gz
        output: output file, compressed if its name ends with .gz; FILE.partial until complete
        format: text: the translation; json: one object per line, with source, translation, score, tokens, their
            scores, and the alignment if requested
        scores: write the score and a TAB before each translation; the score is the log-probability divided by length
            ** length_penalty
        alignments: output file for the links, one line `i-j i-j` per translation, counted from 0. With --format json,
            `--alignments -` writes the links into the JSON [default: none]
        aligner: folder or Hub name of a word aligner that makes the links [default: the attention of MODEL, with the
            settings of `attncal align select` if it was run]
        beams: beam size; 1 is greedy
        generation: settings of transformers' generate() as KEY=VALUE, after --generation or anywhere on the command
            line: length_penalty=1.2, max_new_tokens=200 (the default is twice the longest source of the batch plus
            10), no_repeat_ngram_size=3, prefix="to German: " (put in front of each line) [default: the model's own]
        too_long: error refuses a line with more tokens than the model has positions, or more bytes than
            --longest-line; truncate cuts it
        running: device, precision and limits of the run

    Returns:
        Without `output`, the lines that the command writes, or with `format="json"` an `Answer` for each: `text`,
        `score`, `alignment` and further details.

    Raises:
        CommandError: options that do not go together, a model that cannot be loaded, or a line that cannot be
            translated; all lines before it are written.
    """
    aligned = aligner is not None or alignments not in (None, False)
    links = None if isinstance(alignments, bool) or alignments == STANDARD else alignments
    if aligned and links is None and format == "text":
        raise CommandError(
            "--format text has no place for links. Give them a file with --alignments FILE, or choose --format json."
        )
    if aligned and aligner is None and too_long == "truncate":
        raise CommandError(
            "With --too-long truncate, links need a word aligner: the attention of MODEL covers only the part that it "
            "reads. Give --aligner."
        )
    check_range("--beams", beams, 1)
    from hf_attncal.inference.search import generation_settings

    settings = generation_settings(generation)
    text = check_text(source, {"--output": output, "--alignments": links})
    from hf_attncal.inference.encoder_decoders import load_model
    from hf_attncal.inference.opening import check_loadable, fetched

    check_loadable(aligner)
    name = fetched(model, running)
    loaded = load_model(name, running, beams)
    folder = None if loaded is model else getattr(loaded[0], "of_model", name)  # folder with its alignment.json
    from hf_attncal.alignment.aligner_settings import aligner_beside
    from hf_attncal.data.languages import trial_source
    from hf_attncal.inference.answers import Form, answer_text, translating, try_answers

    others = replace(running, revision=None, languages=None)
    reading: dict[str, Any] = {"batch_size": running.batch_size or _BATCH, "too_long": too_long}
    linking = aligner_beside(aligner, others, folder, loaded, format == "text") if aligned else None
    generate = None
    if linking is not None and linking.source.reads_observer_of(loaded[0]):
        from hf_attncal.adapters.observing import observing_generate

        generate = observing_generate(loaded[0], linking.source.observed)
    work = translating(
        loaded[0],
        loaded[1],
        aligner=linking,
        generate=generate,
        num_beams=beams,
        scores=scores or format == "json",
        **reading,
        **settings,
    )
    if settings:
        try_answers(work, folder or "the model", [trial_source(loaded[1])])
    reading |= {"longest_line": running.longest_line or LONGEST_LINE, "progress": running.progress}
    return answer_text(loaded, text, work, Form("translation", format, scores), output=output, links=links, **reading)
