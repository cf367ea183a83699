"""`attncal times`: times of the words of an audio, and words that nobody said or wrote."""

from typing import TYPE_CHECKING

from hf_attncal.inference.running import Running
from hf_attncal.io.errors import user_errors
from hf_attncal.io.files import lines_of
from hf_attncal.io.streams import check_files, files_among, output_lines, write_lines

from .kinds import File, Model, Output, Text, Timing

if TYPE_CHECKING:
    from hf_attncal.speech.timed_words import Word


def times(
    audio: File,
    /,
    *,
    model: Model,
    observer: Model,
    text: Text | None = None,
    output: Output = None,
    language: str | None = None,
    running: Timing = Running(),
) -> "list[Word] | None":
    """Find the time of each spoken word.

    Whisper transcribes the audio as it does without an observer, unless --text is given. The observer then finds the
    place of each word. A word that nobody spoke, such as Whisper writes in silence, is marked `[-word-]`. A word that
    was heard and is missing in --text is marked `{+word+}`. The function `learn_word_times` makes an observer from
    speech with known word times; see docs/observers.md.

    Examples:
        attncal times talk.wav --model whisper --observer observer --output talk.srt
        attncal times talk.wav --text talk.txt --model whisper --observer observer --output talk.TextGrid

        >>> hf_attncal.times("talk.wav", model="whisper", observer="observer")[0].start

    Args:
        audio: audio file (WAV, FLAC, OGG, MP3)
        model: folder or Hub name of a Whisper model
        observer: folder of an observer of this model
        text: text of the audio, words separated by white space [default: the transcript of the model]
        output: output file; the ending .srt is for subtitles, .vtt for subtitles with the time of each word, .TextGrid
            for Praat, any other for JSON with the probabilities
        language: language of the audio, such as de [default: detected by the model]
        running: device and precision

    Returns:
        Without `output`, a `Word` for each word: `text`, `start`, `end`, `probability` and `kind`.

    Raises:
        CommandError: a file that is no audio, a model without an observer, or a text that does not fit the audio.
    """
    check_files([*files_among(text), f"{audio}"], {"--output": output})
    from hf_attncal.io.extras import need

    need("speech")
    from hf_attncal.inference.opening import check_loadable

    with user_errors():
        lines = None if text is None else lines_of(text)
    check_loadable(model, observer)
    from hf_attncal.speech.sound import read_audio
    from hf_attncal.speech.transcribing import load_speech, word_times
    from hf_attncal.speech.writing import WORD_FORMATS, format_by_name

    with user_errors():
        samples = read_audio(audio)
    whisper, processor, unspoken = load_speech(f"{model}", f"{observer}", running)
    with user_errors():
        transcript = None if lines is None else " ".join(lines)
        words = word_times(whisper, processor, samples, transcript, unspoken=unspoken, language=language)
    if output is None:
        return words
    with output_lines(f"{output}") as file:
        write_lines(file, WORD_FORMATS[format_by_name(f"{output}")](words).splitlines())
    return None
