"""Words with times as JSON, subtitles (SRT, WebVTT) and TextGrid of Praat."""

import json
from collections.abc import Callable, Iterator, Sequence

from .sound import Word

_LONGEST, _PAUSE = 80, 0.7  # characters and the pause in seconds that end a subtitle
_MARKS = {"said": "{}", "unspoken": "[-{}-]", "unwritten": "{{+{}+}}"}


def word_with_marks(word: Word) -> str:
    """Return the word, with marks if nobody said it, `[-...-]`, or nobody wrote it, `{+...+}`."""
    return _MARKS[word.kind].format(word.text)


def transcript(words: Sequence[Word]) -> dict:
    """Return words in the form of transformers' pipeline with `return_timestamps="word"`."""
    chunks = [
        {
            "text": f" {word.text}",
            "timestamp": (round(word.start, 3), round(word.end, 3)),
            "probability": round(word.probability, 4),
            "kind": word.kind,
        }
        for word in words
    ]
    return {"text": "".join(str(chunk["text"]) for chunk in chunks), "chunks": chunks}


def _cues(words: Sequence[Word]) -> Iterator[list[Word]]:
    cue: list[Word] = []
    for word in words:
        length = sum(len(before.text) + 1 for before in cue) + len(word.text)
        ends = cue and cue[-1].text.endswith((".", "!", "?"))
        if cue and (ends or word.start - cue[-1].end > _PAUSE or length > _LONGEST):
            yield cue
            cue = []
        cue.append(word)
    if cue:
        yield cue


def _clock(seconds: float, separator: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{separator}{rest % 1000:03}"


def _spans(words: Sequence[Word], separator: str) -> Iterator[tuple[str, list[Word]]]:
    for cue in _cues(words):
        start, end = (_clock(time, separator) for time in (cue[0].start, max(word.end for word in cue)))
        yield f"{start} --> {end}", cue


def srt(words: Sequence[Word]) -> str:
    """Return SubRip subtitles."""
    cues = enumerate(_spans(words, ","), start=1)
    return "\n".join(f"{number}\n{span}\n{' '.join(map(word_with_marks, cue))}\n" for number, (span, cue) in cues)


def vtt(words: Sequence[Word]) -> str:
    """Return WebVTT subtitles with the time of each word (karaoke)."""

    def text(word: Word) -> str:
        escaped = word_with_marks(word).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<{_clock(word.start, '.')}><c>{escaped}</c>"

    return "WEBVTT\n" + "".join(f"\n{span}\n{' '.join(map(text, cue))}\n" for span, cue in _spans(words, "."))


def textgrid(words: Sequence[Word]) -> str:
    """Return a TextGrid with a tier of words; a word without length is in the label of its neighbour."""
    intervals: list[tuple[float, float, str]] = []
    labels: list[str] = []
    end = 0.0
    for word in words:
        labels.append(word_with_marks(word))
        if word.end <= max(word.start, end):
            continue
        if word.start > end:
            intervals.append((end, word.start, ""))
        intervals.append((max(word.start, end), word.end, " ".join(labels)))
        end, labels = word.end, []
    if labels:
        intervals.append((end, end + 0.01, " ".join(labels)))
    head = f"xmin = 0\nxmax = {intervals[-1][1]:.3f}\n" if intervals else "xmin = 0\nxmax = 0\n"
    lines = [
        'File type = "ooTextFile"\nObject class = "TextGrid"\n\n' + head + "tiers? <exists>\nsize = 1\nitem []:\n"
        '    item [1]:\nclass = "IntervalTier"\nname = "words"\n' + head + f"intervals: size = {len(intervals)}\n"
    ]
    for number, (start, stop, label) in enumerate(intervals, start=1):
        text = label.replace('"', '""')
        lines.append(f'intervals [{number}]:\nxmin = {start:.3f}\nxmax = {stop:.3f}\ntext = "{text}"\n')
    return "".join(lines)


def json_transcript(words: Sequence[Word]) -> str:
    """Return `transcript` as JSON."""
    return json.dumps(transcript(words), ensure_ascii=False, indent=1) + "\n"


WORD_FORMATS: dict[str, Callable[[Sequence[Word]], str]] = {
    "json": json_transcript,
    "srt": srt,
    "vtt": vtt,
    "TextGrid": textgrid,
}


def format_by_name(name: str) -> str:
    """Return the format of a file by the ending of its name; JSON for another ending."""
    ending = name.rpartition(".")[2].casefold()
    return next((form for form in WORD_FORMATS if form.casefold() == ending), "json")
