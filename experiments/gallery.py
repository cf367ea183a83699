"""Make the pictures of docs/gallery.md: what the commands show on a screen of 1,280 pixels and on a phone of 390.

    python experiments/gallery.py               # needs Chromium
    python experiments/gallery.py check report  # only these

What a terminal shows is drawn as a page, in as many columns as fit. The texts are those of the demo.
"""

import argparse
import base64
import html
import os
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from hf_attncal.commands.demo import PAGE

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from chromium import Browser, found

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images" / "gallery"
REPORT = IMAGES.parents[1] / "static" / "firefox_enpt.html"  # of a model that people use; docs/gallery.md says how
# Pixels of a screen and a phone, and columns of a terminal there.
SCREENS = {"wide": (1280, 800, 128), "narrow": (390, 844, 50)}
COLOURS = 64  # of a picture, so that it is small
_TERMINAL = """<!DOCTYPE html><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<style>body {{ margin: 0; background: #1e2229; color: #e4e6ea }}
pre {{ margin: 12px; font: {size}px/1.4 "DejaVu Sans Mono", monospace; white-space: pre-wrap; word-break: break-all }}
</style><pre>{text}</pre>"""
BUSY = "document.getElementById('pair')?.getAttribute('aria-busy') === 'false'"


class Gallery:
    """Takes pictures.

    Args:
        place: a folder for files.
    """

    def __init__(self, place: Path):
        self.place = place
        self.browser = Browser(found(), place / "profile")
        self.browser.ask("Emulation.setScrollbarsHidden", hidden=True)  # as on a phone
        for side, lines in (("text.de", PAGE), ("text.en", [pair[::-1] for pair in PAGE])):
            (place / side).write_text("".join(f"{line[0]}\n" for line in lines), encoding="utf-8")

    def take(self, name: str, address: Callable[[str], str], done: str = "true") -> None:
        """Take both pictures of a page; `address` returns that for a screen."""
        for screen, (width, height, _) in SCREENS.items():
            self.browser.open(address(screen), width=width, height=height)
            self.browser.wait(done, seconds=600)
            wider = self.browser.value("document.documentElement.scrollWidth")
            if wider > width:
                print(f"{name}, {screen}: {wider} pixels wide")
            tall = min(height, self.browser.value("Math.ceil(document.body.getBoundingClientRect().bottom) + 12"))
            clip = {"x": 0, "y": 0, "width": width, "height": tall, "scale": 1}
            data = base64.b64decode(self.browser.ask("Page.captureScreenshot", clip=clip)["data"])
            path = IMAGES / f"{name}_{screen}.png"
            picture = Image.open(BytesIO(data)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
            picture.save(path, optimize=True)
            print(f"{path}: {path.stat().st_size:,} bytes")

    def terminal(self, name: str, *commands: str) -> None:
        """Take pictures of what commands print."""

        def address(screen: str) -> str:
            shown = "".join(f"$ attncal {words}\n{self.output(words, SCREENS[screen][2])}" for words in commands)
            page = self.place / f"{name}_{screen}.html"
            text = _TERMINAL.format(size=13 if screen == "wide" else 12, text=html.escape(shown))
            page.write_text(text, encoding="utf-8")
            return page.as_uri()

        self.take(name, address)

    def output(self, words: str, columns: int = 128) -> str:
        """Return what a command prints in a terminal of so many columns."""
        command = [sys.executable, "-m", "hf_attncal", *words.split()]
        environment = os.environ | {"COLUMNS": str(columns)}
        return subprocess.run(
            command, cwd=self.place, env=environment, check=True, capture_output=True, text=True
        ).stdout

    # ---- pictures ----

    def demonstration(self) -> None:
        with_ready = "from pathlib import Path; from hf_attncal.commands.demo import show_ready; show_ready(Path())"
        command = [sys.executable, "-c", with_ready]
        shown = subprocess.run(command, cwd=self.place, check=True, capture_output=True, text=True).stdout
        self.output = lambda words, columns: shown
        self.terminal("demo", "demo")
        del self.output

    def help_check(self) -> None:
        self.terminal("help_check", "check --help")

    def align(self) -> None:
        self.output("align run deen --source text.de --target text.en --format html --output pairs.html")
        self.take("align", lambda screen: (self.place / "pairs.html").as_uri())

    def check(self) -> None:
        self.output("check deen --source text.de --target text.en --format html --output checked.html")
        self.take("check", lambda screen: (self.place / "checked.html").as_uri())

    def marked(self) -> None:
        texts = "--source text.de --target text.en"
        self.terminal("marked", f"align run deen {texts}", f"check deen {texts} --format marked")

    def report(self) -> None:
        self.take("report", lambda screen: REPORT.as_uri(), BUSY)


NAMES = ("demonstration", "help_check", "align", "check", "marked", "report")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(NAMES)}; by default all")
    args = parser.parse_args()
    IMAGES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as place:
        gallery = Gallery(Path(place))
        try:
            for name in args.names or NAMES:
                getattr(gallery, name)()
        finally:
            gallery.browser.close()


if __name__ == "__main__":
    main()
