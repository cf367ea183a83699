"""`attncal summarize`: write one summary per text, with scores and the sources of copied words."""

from typing import TYPE_CHECKING, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, check_range
from hf_attncal.io.streams import check_text

from .kinds import Input, Loaded, Output, Summarising, Values

if TYPE_CHECKING:
    from hf_attncal.inference.answers import Answer

GROUPS = {"Search": ("beams", "generation", "too_long")}
_LONGEST = 100_000  # bytes of a text, about 20,000 words: more than most models can read
_BATCH = 16  # texts


def summarize(
    model: Loaded,
    source: Input = None,
    *,
    output: Output = None,
    format: Literal["text", "marked", "copied", "json"] = "text",
    scores: bool = False,
    beams: int | None = None,
    generation: Values = None,
    too_long: Literal["truncate", "error"] = "truncate",
    running: Summarising = Running(),
) -> "list[str] | list[Answer] | None":
    """Summarise texts, one per line.

    Each line of input gives exactly one line of output, in the same order, written as the input arrives. An empty line
    gives an empty line. A text that is longer than the model can read is summarised from its beginning, and a warning
    at the end lists those lines. Options that are not given have the values of the model's generation_config.json.

    Examples:
        attncal summarize MODEL texts.txt > summaries.txt
        attncal summarize MODEL texts.txt --output summaries.txt --too-long error
        attncal summarize MODEL --format marked < texts.txt
        attncal summarize MODEL texts.txt --beams 4 min_new_tokens=20 max_new_tokens=60

        >>> summaries = hf_attncal.summarize("model", ["A long text."], beams=4)

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter. In Python also (model, tokenizer).
        source: texts, one per line; plain or .gz
        output: output file, compressed if its name ends with .gz; FILE.partial until complete
        format: text: the summary; marked: copied words in brackets, each with the number, from 0, of its word in the
            text, `[Oslo]4 wins`; copied: `summary TAB i-j i-j`, word j of the summary is copied from word i of the
            text; json: one object per line, with source, summary, score, tokens, their scores, and the copied words of
            a model that copies
        scores: write `score TAB summary`; the score is the log-probability / length ** length_penalty
        beams: beam size; 1 is greedy [default: the model's own]
        generation: settings of transformers' generate(), anywhere on the line: length_penalty=2, min_new_tokens=20,
            max_new_tokens=60 (if the model also has none, twice the longest text of a batch plus 10),
            no_repeat_ngram_size=3, prefix="summarize: " (put in front of each text) [default: the model's own]
        too_long: truncate or refuse a text of more tokens than the model can read, or of more bytes than
            --longest-line
        running: device, precision and limits of the run

    Returns:
        Without `output`, the lines that the command writes, or with `format="json"` an `Answer` for each text: `text`,
        `score` and `generated`, with `copies` and `cut_from`.

    Raises:
        CommandError: options that do not suit the model, a model that cannot be loaded, or a text that cannot be
            summarised; all texts before it are written.
    """
    check_range("--beams", beams, 1)
    from hf_attncal.inference.search import generation_settings

    settings = generation_settings(generation)
    text = check_text(source, {"--output": output})
    from hf_attncal.inference.encoder_decoders import load_model
    from hf_attncal.inference.opening import fetched

    name = fetched(model, running)
    loaded = load_model(name, running, beams or 2)
    from hf_attncal.data.languages import trial_source
    from hf_attncal.inference.answers import Form, answer_text, try_answers
    from hf_attncal.inference.summarization import summarizing

    label, copies = "the model" if loaded is model else name, bool(getattr(loaded[0].config, "copy", False))
    if format in ("marked", "copied") and not copies:
        raise CommandError(
            f"--format {format} shows copied words, and {label} copies nothing. Give --format text or json, or "
            "a model that was trained with --model summarizer+copy."
        )
    copied = copies and format != "text"
    reading: dict[str, Any] = {"batch_size": running.batch_size or _BATCH, "too_long": too_long}
    settings |= {"num_beams": beams, "scores": scores or format == "json", "copied": copied}
    work = summarizing(loaded[0], loaded[1], **reading, **settings)
    if generation:
        try_answers(work, label, [trial_source(loaded[1])])
    reading |= {"longest_line": running.longest_line or _LONGEST, "progress": running.progress}
    return answer_text(loaded, text, work, Form("summary", format, scores, copied), output=output, **reading)
