"""Lines of text files, as they are: what cannot be what the caller thinks it is stops the program."""

from pathlib import Path

from .compressed import TOLD, DamagedFile, looks_like, open_to_read


def read_pairs(source: str | Path, target: str | Path) -> tuple[list[str], list[str]]:
    """The lines of two files, line n of one belonging to line n of the other.

    Raises:
        ValueError: see `read_lines`; also if the numbers of lines differ.
    """
    source_lines, target_lines = read_lines(source), read_lines(target)
    if len(source_lines) != len(target_lines):
        raise ValueError(
            f"Parallel files must have the same number of lines, but `{source}` has {len(source_lines)} and "
            f"`{target}` has {len(target_lines)}. Check that both are of the same split and were not filtered apart."
        )
    return source_lines, target_lines


def read_lines(path: str | Path) -> list[str]:
    """The lines of a UTF-8 text file, without line ends; `.gz`, `.xz` and `.zst` files are decompressed.

    Only LF and CRLF end a line. Unicode separators such as U+2028 and the form feed do not: text that contains them
    would otherwise shift every later line against the other language.

    Raises:
        ValueError: the file is missing, neither a regular file nor a pipe (`<(command)`; it is read once), cannot be
            read or decompressed, is not UTF-8 (with the line number), or has no text.
    """
    path = Path(path)
    if not path.is_file() and not path.is_fifo():
        problem = "is a directory" if path.is_dir() else "is a device" if path.exists() else "does not exist"
        raise ValueError(f"Text file `{path}` {problem}. Give the path of a text file, {TOLD}.")
    try:
        with open_to_read(path) as file:
            data = file.read()
    except DamagedFile as error:
        raise ValueError(
            f"Text file `{path}` cannot be decompressed ({error}). It is damaged or not a {path.suffix} file: "
            "fetch it again, or rename it if it is plain text."
        ) from error
    except OSError as error:
        raise ValueError(f"Text file `{path}` cannot be read: {error.strerror or error}.") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        if suffix := looks_like(data):
            raise ValueError(f"Text file `{path}` looks like a {suffix} file. Give it a name that ends so.") from error
        raise ValueError(
            f"Text file `{path}` is not UTF-8: byte 0x{data[error.start]:02x} in line {line}. "
            "Convert it to UTF-8 first, for example with `iconv -f latin1 -t utf-8`."
        ) from error
    if not text.strip():
        raise ValueError(f"Text file `{path}` is empty ({len(data)} bytes without text). Give a file with sentences.")
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]
