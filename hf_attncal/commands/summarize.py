"""`attncal summarize`: one summary for each text, with scores and what was copied from where."""

from typing import TYPE_CHECKING, Any, Literal

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import CommandError, at_least
from hf_attncal.io.streams import check_text

from .kinds import Input, Loaded, Output, Values

if TYPE_CHECKING:
    from hf_attncal.inference.answers import Answer

GROUPS = {"Search": ("beams", "generation", "too_long")}
_LONGEST = 100_000  # bytes of a text: some 20,000 words, more than most models read
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
    running: Running = Running(),
) -> "list[str] | list[Answer] | None":
    """Summarise texts, one in a line.

    Exactly one summary out for each line in, on one line, in the same order, written as the input arrives. An empty
    line gives an empty line. A text that is longer than the model reads is summarised from its beginning, and a
    warning at the end says which lines that were. Where an option is not given, generation_config.json of the model
    decides.

    Examples:
        attncal summarize MODEL < texts.txt > summaries.txt
        attncal summarize MODEL --source texts.txt --output summaries.txt --too-long error
        attncal summarize MODEL --format marked < texts.txt
        attncal summarize MODEL --source texts.txt --beams 4 min_new_tokens=20 max_new_tokens=60

    Args:
        model: folder or Hub name of an encoder-decoder, or of an adapter; in Python also (model, tokenizer)
        source: texts, one a line; plain, .gz, .xz or .zst; without it, standard input
        output: written as FILE.partial and renamed when it is complete, compressed as its name says; without it,
            standard output
        format: marked: copied words in brackets, each with the number, from 0, of the word of the text that it is
            copied from, `[Oslo]4 wins`; copied: `summary TAB i-j i-j`, word j of the summary is copied from word i
            of the text; json: one object a line, with source, summary, score, tokens, their scores, and what is
            copied where the model copies
        scores: write `score TAB summary`; the score is the log-probability / length ** length_penalty
        beams: beam size; 1 is greedy; without it, what the model says
        generation: settings of transformers' generate(), anywhere on the line: length_penalty=2, min_new_tokens=20,
            max_new_tokens=60 (if the model does not say it either, twice the longest text of a batch plus 10),
            no_repeat_ngram_size=3, prefix="summarize: " (what to put in front of each text);
            without them, what the model says
        too_long: what to do with a text of more tokens than the model reads, or of more bytes than --longest-line
        running: how it runs

    Returns:
        In Python, without `output`: the lines that the command writes, or with `format="json"` an `Answer` for each
        text: `text`, `score` and `generated`, with `copies` and `cut_from`.

    Raises:
        CommandError: options that do not suit the model, a model that cannot be loaded, or a text that cannot be
            summarised; all texts before it are written.
    """
    at_least("--beams", beams, 1)
    from hf_attncal.inference.search import generation_settings, texts_to_try

    settings = generation_settings(generation)
    trials = texts_to_try(settings)
    text = check_text(source, {"--output": output})
    from hf_attncal.inference.encoder_decoders import load_model
    from hf_attncal.inference.opening import fetched

    name = fetched(model, running)
    loaded = load_model(name, running, beams or 2)
    from hf_attncal.data.languages import sample
    from hf_attncal.inference.answers import Form, answer_text, try_answers
    from hf_attncal.inference.summarization import summarizing

    called, copies = "the model" if loaded is model else name, bool(getattr(loaded[0].config, "copy", False))
    if format in ("marked", "copied") and not copies:
        raise CommandError(
            f"--format {format} says what is copied, and {called} copies nothing. Give --format text or json, or "
            "a model that was trained with --model summarizer+copy."
        )
    copied = copies and format != "text"
    reading: dict[str, Any] = {"batch_size": running.batch_size or _BATCH, "too_long": too_long}
    settings |= {"num_beams": beams, "scores": scores or format == "json", "copied": copied}
    work = summarizing(loaded[0], loaded[1], **reading, **settings)
    try_answers(work, called, [sample(loaded[1]) for _ in trials])
    reading |= {"longest_line": running.longest_line or _LONGEST, "progress": running.progress}
    return answer_text(loaded, text, work, Form("summary", format, scores, copied), output=output, **reading)
