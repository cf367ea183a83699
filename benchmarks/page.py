"""How long a person waits for the live page and for the page of a report, in a real browser; needs Chromium.

    python benchmarks/page.py demo/model

MODEL is what `attncal demo` makes. Sentences of its synthetic English are typed into the page of `attncal show`, which
answers them in pieces. Then the page to keep of the same sentences is opened from a file. Usable is a page that shows
the first sentence and takes keys.
"""

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path

import common

from hf_attncal.data.synthetic.english_german import generate_pairs
from hf_attncal.inference.loading import load_seq2seq
from hf_attncal.report.live import LiveModel
from hf_attncal.report.live_server import LiveServer

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from chromium import Browser, found

BUSY = "document.getElementById('pair').getAttribute('aria-busy')"
FIRST = f"!document.getElementById('browser').hidden && {BUSY} === 'false'"
ALL = f"{FIRST} && document.getElementById('progress').textContent === ''"


def seconds_until(browser: Browser, done: str, began: float) -> float:
    """Wait until a JavaScript expression is true, and return the seconds since `began`."""
    browser.wait(done, seconds=3600)
    return round(time.monotonic() - began, 2)


def measure(live: LiveModel, lines: list[str], folder: Path) -> dict[str, float]:
    """Return seconds and bytes of both forms of the page for some lines."""
    browser = Browser(found(), folder / "profile")
    try:
        with LiveServer(live) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            browser.open(server.url)
            browser.value(f"document.getElementById('text').value = {chr(10).join(lines)!r}; 0")
            began = time.monotonic()
            browser.value("document.getElementById('translate').click()")
            results = {"seconds_to_first_answer": seconds_until(browser, FIRST, began)}
            results["seconds_to_all_answers"] = seconds_until(browser, ALL, began)
            server.shutdown()
        page = folder / "report.html"
        began = time.monotonic()
        live.write_report(lines, page)
        results["seconds_to_write_the_page"] = round(time.monotonic() - began, 2)
        results["page_bytes"] = page.stat().st_size
        browser.open("about:blank#")
        began = time.monotonic()
        browser.ask("Page.navigate", url=page.as_uri())
        results["seconds_to_usable_page"] = seconds_until(
            browser, f"document.readyState !== 'loading' && document.getElementById('browser') && {FIRST}", began
        )
        began = time.monotonic()
        for _ in range(20):
            browser.press("j")
        results["seconds_for_20_sentences_by_key"] = seconds_until(
            browser, f"{FIRST} && document.getElementById('number').textContent.startsWith('Sentence 21')", began
        )
    finally:
        browser.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--output", type=Path, help="JSON file; by default results/benchmark_page_cpu.json")
    args = parser.parse_args()
    lines = [" ".join(pair.source) for pair in generate_pairs(args.lines, seed=9)]
    args.device = "cpu"
    head = common.record("page", args, words=sum(len(line.split()) for line in lines))
    live = LiveModel(*load_seq2seq(args.model), "model of the demo")
    with tempfile.TemporaryDirectory() as folder:
        results = measure(live, lines, Path(folder))
    print(results)
    common.save(args, head | {"results": results})


if __name__ == "__main__":
    main()
