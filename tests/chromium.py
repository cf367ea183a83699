"""Headless Chromium, driven over a pipe by its DevTools protocol with only the standard library."""

import base64
import json
import os
import shutil
import subprocess
import time
from contextlib import suppress
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
KEYS = {"ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Home": 36, "Tab": 9,
        "Escape": 27, "Delete": 46, "Enter": 13}  # fmt: skip


def found() -> str | None:
    """Return the program: ATTNCAL_CHROMIUM, or the first known name on the path."""
    return os.environ.get("ATTNCAL_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """Tab of a browser.

    Args:
        program: path of Chromium.
        profile: folder for the browser's data.
    """

    def __init__(self, program: str, profile: Path):
        browser_in, our_out = os.pipe()
        our_in, browser_out = os.pipe()

        def ends() -> None:  # the protocol uses the descriptors 3 and 4
            for number, end in ((3, os.dup(browser_in)), (4, os.dup(browser_out))):
                os.dup2(end, number)

        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        self.process = subprocess.Popen(
            [program, *options, f"--user-data-dir={profile}", "about:blank"],
            preexec_fn=ends,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(browser_in)
        os.close(browser_out)
        self.out, self.into = os.fdopen(our_out, "wb"), os.fdopen(our_in, "rb")
        self.numbers, self.session, self.events = count(1), None, []
        targets = self.ask("Target.getTargets")["targetInfos"]
        (target,) = [entry["targetId"] for entry in targets if entry["type"] == "page"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")

    def close(self) -> None:
        with suppress(OSError):
            self.ask("Browser.close")
        for end in (self.out, self.into):
            with suppress(OSError):
                end.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def ask(self, method: str, **parameters) -> dict[str, Any]:
        """Send a command and return its answer; earlier events are kept in `events`."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.out.write(json.dumps(message).encode() + b"\0")
        self.out.flush()
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self.into.read(1)) != b"\0":
            if not byte:
                raise EOFError("Chromium has ended.")
            data += byte
        return json.loads(data)

    def open(self, address: str, **size) -> None:
        """Open an address, and wait until it is loaded."""
        if size:
            self.ask("Emulation.setDeviceMetricsOverride", deviceScaleFactor=1, mobile=False, **size)
        self.events.clear()
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 20) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while not self.value(expression):
            assert time.monotonic() < end, f"still not: {expression}"
            time.sleep(0.02)

    def press(self, key: str) -> None:
        """Press a key as a person does."""
        code = KEYS.get(key, ord(key.upper()[0]))
        more = {"text": "\r"} if key == "Enter" else {} if key in KEYS else {"text": key}
        self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, **more)
        self.ask("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def chosen_word(self) -> str | None:
        """Return the word that has the focus, as side and number."""
        return self.value(
            "(({side, n}) => side ? `${side}.${n}` : null)(document.activeElement.closest('.word')?.dataset ?? {})"
        )

    def picture(self) -> Image.Image:
        """Return the image that the button PNG writes."""
        self.value("""globalThis.made = new Promise((resolve) => {
          const old = URL.createObjectURL;
          URL.createObjectURL = (blob) => {
            const reader = new FileReader();
            reader.onload = () => resolve(reader.result);
            reader.readAsDataURL(blob);
            URL.createObjectURL = old;
            return old.call(URL, blob);
          };
        }); document.getElementById('picture').click()""")
        head, _, data = self.value("globalThis.made").partition(",")
        assert head == "data:image/png;base64"
        return Image.open(BytesIO(base64.b64decode(data))).convert("RGB")

    def complaints(self) -> list[dict[str, Any]]:
        """Return script errors and log entries since the page was opened."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded", "Page.javascriptDialogOpening")
        return [event for event in self.events if event.get("method") in kinds]

    def requests(self) -> list[str]:
        """Return the addresses fetched since the page was opened, without data: addresses."""
        addresses = [event["params"]["request"]["url"] for event in self.events
                     if event.get("method") == "Network.requestWillBeSent"]  # fmt: skip
        return [address for address in addresses if not address.startswith("data:")]
