"""`attncal times`: times of the words of an audio, and words that nobody said or wrote."""

from typing import TYPE_CHECKING, Literal

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
    format: Literal["json", "srt", "vtt", "TextGrid"] | None = None,
    language: str | None = None,
    running: Timing = Running(),
) -> "list[Word] | None":
    """Find when each word of an audio is said.

    Whisper transcribes the audio as it does without an observer, or --text is its text. The observer then says where
    the model hears each word. A word that nobody said, as Whisper writes them in silence, is marked `[-word-]`; a word
    that was heard and is missing in --text `{+word+}`. An observer is learned by `learn_word_times`, from speech whose
    words have times; see docs/observers.md.

    Examples:
        attncal times talk.wav --model whisper --observer observer --output talk.srt
        attncal times talk.wav --text talk.txt --model whisper --observer observer --output talk.TextGrid

        >>> hf_attncal.times("talk.wav", model="whisper", observer="observer")[0].start

    Args:
        audio: audio file (WAV, FLAC, OGG, MP3)
        model: folder or Hub name of a Whisper model
        observer: folder of an observer of this model
        text: text of the audio, words separated by white space [default: the transcript of the model]
        output: output file
        format: json: words, times and probabilities; srt: subtitles; vtt: subtitles with the time of each word;
            TextGrid: for Praat [default: by the ending of --output, else json]
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
    from hf_attncal.speech.writing import FORMATS, format_of

    with user_errors():
        chosen = format_of(output, format)
        lines = None if text is None else lines_of(text)
    check_loadable(model, observer)
    from hf_attncal.speech.opening import load_speech
    from hf_attncal.speech.sound import read_audio
    from hf_attncal.speech.transcribing import word_times

    with user_errors():
        samples = read_audio(audio)
    whisper, processor, unspoken = load_speech(f"{model}", f"{observer}", running)
    with user_errors():
        given = None if lines is None else " ".join(lines)
        words = word_times(whisper, processor, samples, given, unspoken=unspoken, language=language)
    if output is None:
        return words
    with output_lines(f"{output}") as file:
        write_lines(file, FORMATS[chosen](words).splitlines())
    return None
