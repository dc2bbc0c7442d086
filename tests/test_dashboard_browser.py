"""The live page in a browser: headless Chromium, driven over its own debugging pipe, on a study that really runs."""

from __future__ import annotations

import base64
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import TRADEWIND
from test_dashboard import Served, served
from test_report import EVIL, small
from test_results import record, write_run

WORDS = "one.innerText.split(/\\s+/).join(' '))"
FIGURE = "document.querySelector('figure img')?.naturalWidth > 100"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-sync", "--disable-component-update", "--disable-extensions", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
WORK = """
import time

def train(config, trial):
    for epoch in range(1, 5):
        time.sleep(0.12)
        trial.report(epoch, score=config["x"] * epoch / 4, loss=1 / epoch)
    if config["x"] == 3:
        raise ValueError("three <img src=x onerror=alert(1)> is refused")
    return {"score": config["x"] + (config["kind"] == "b"), "cost": 2.0 * config["x"]}
"""

SORTING = """
(async () => {
  const times = [];
  for (const name of ["accuracy", "wall_s", "augment", "batch_size", "trial", "dropout"]) {
    const begin = performance.now();
    location.hash = `#/run/run/trials?where=batch_size%20%3E%2064&sort=${name}&order=down`;
    const sorted = () => document.querySelector("th[aria-sort=descending]")?.textContent.startsWith(name);
    while (!sorted() && performance.now() < begin + 5000) await new Promise(requestAnimationFrame);
    times.push(performance.now() - begin);
  }
  return times;
})()
"""


class Browser:
    """One page of a Chromium; whatever it complains of is kept."""

    def __init__(self, program: str, profile: Path) -> None:
        to_read, to_write = os.pipe(), os.pipe()
        words = f"{' '.join(FLAGS)} --user-data-dir='{profile}' about:blank"
        place = f"exec '{program}' {words} 3<&{to_read[0]} 4>&{to_write[1]}"
        quiet = subprocess.DEVNULL
        ends = (to_read[0], to_write[1])
        call = ["bash", "-c", place]
        self._process = subprocess.Popen(call, pass_fds=ends, stdin=quiet, stdout=quiet, stderr=quiet)
        for end in ends:
            os.close(end)
        self._write, self._read = to_read[1], to_write[0]
        self._rest, self._numbers, self._session = b"", itertools.count(1), ""
        self.complaints: list[str] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(one["targetId"] for one in targets if one["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **words: Any) -> Any:
        """One command and its answer."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": words}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            found = self._next()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            block = os.read(self._read, 1 << 20)
            assert block, "the browser has ended"
            self._rest += block
        text, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(text)
        words = found.get("params", {})
        if found.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(words["exceptionDetails"])[:600])
        elif found.get("method") == "Log.entryAdded" and words["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{words['entry']['text']} {words['entry'].get('url', '')}")
        elif found.get("method") == "Runtime.consoleAPICalled" and words["type"] in ("error", "warning", "assert"):
            self.complaints.append(str(words["args"]))
        return found

    def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are awaited."""
        found = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def until(self, script: str, within_s: float = 20) -> Any:
        """The first true value of an expression."""
        end = time.monotonic() + within_s
        while not (found := self.run(script)):
            assert time.monotonic() < end, f"not within {within_s} s: {script}; the page: {self.text()[:1500]}"
            time.sleep(0.05)
        return found

    def open(self, address: str) -> None:
        self.ask("Page.navigate", url=address)
        self.until("document.readyState === 'complete'")

    def go(self, place: str, ready: str) -> None:
        """Another view of the page, by its address, once it shows something."""
        self.run(f"location.hash = {json.dumps(place)}")
        self.until(f"!!({ready})")

    def text(self) -> str:
        return str(self.run("document.querySelector('main').innerText"))

    def press(self, key: str) -> None:
        codes = {"Enter": (13, "\r"), "Tab": (9, "")}
        code, text = codes[key]
        for kind in ("keyDown", "keyUp"):
            self.ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, text=text)

    def look(self, path: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Keep a picture of the page."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=theme)
        same = "true" if dark else "false"  # figures are drawn anew for the other theme
        drawn = f"one.complete && one.currentSrc.includes('theme=dark') === {same}"
        self.until(f"[...document.images].every((one) => {drawn})")
        path.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def faults(self) -> list[str]:
        """What axe finds serious or critical."""
        if not self.run("typeof axe !== 'undefined'"):
            self.run(AXE.read_text() + ";1")
        found = self.run(
            "axe.run(document).then((found) => "
            "found.violations.map((one) => [one.impact, one.id, one.help, one.nodes[0].html]))"
        )
        return [str(one) for one in found if one[0] in ("serious", "critical")]

    def close(self) -> None:
        with suppress(AssertionError, OSError):
            self.ask("Browser.close")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def artefacts() -> Path:
    """Where pictures of the pages are kept, out of git's sight."""
    folder = Path(os.environ.get("TRADEWIND_ARTEFACTS", Path(__file__).parent.parent / "build" / "dashboard"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def browser(chromium: str, place: Path) -> Iterator[Browser]:
    found = Browser(chromium, place / "profile")
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[Served]:
    """A server over runs/, with one run that has ended; the other one is started by the first test."""
    (place / "runs").mkdir()
    small(place / "runs" / "small")
    small(place / "runs" / "other")
    with served(cwd=place) as found:
        found.ready("small")
        yield found


@pytest.fixture(scope="module")
def watched(browser: Browser, server: Served, place: Path) -> dict[str, Any]:
    """A study that runs while the page of all runs and then its own are open; what was seen meanwhile."""
    browser.open(server.address)
    browser.until("document.querySelector('table')?.innerText.includes('small')")
    (place / "work.py").write_text(WORK)
    space = {"x": [1, 2, 3, 4, 5], "kind": ["a", "b"]}
    (place / "live.json").write_text(
        json.dumps({"name": "live", "workload": "work:train", "space": space, "repeats": 2})
    )
    words = ["run", "live.json", "--engine", "processes", "--workers", "2", "--quiet"]
    run = subprocess.Popen([str(TRADEWIND), *words], cwd=place)
    browser.run("window.before = performance.timeOrigin; 1")
    browser.until("document.querySelector('main').innerText.includes('live')")
    browser.go("#/run/live", "document.querySelector('.head progress')")
    seen: dict[str, Any] = {"ended": [], "running": 0}
    while run.poll() is None:
        ended = browser.run("document.querySelector('.head .ended')?.textContent ?? ''")
        seen["ended"] += [ended] if ended not in seen["ended"] else []
        seen["running"] = max(
            seen["running"], browser.run("document.querySelectorAll('main table tbody tr a').length")
        )
        time.sleep(0.1)
    assert run.wait(60) == 1, "some of its trials fail"
    return seen


def test_progress_moves_without_a_reload(browser: Browser, watched: dict[str, Any], artefacts: Path) -> None:
    browser.until("document.querySelector('.head .ended').textContent.trim() === '20 of 20'")
    browser.until("document.querySelector('.head').innerText.includes('ended')")
    assert len(watched["ended"]) >= 4
    assert watched["running"] >= 2
    assert browser.run("performance.timeOrigin === window.before")
    assert browser.run("document.querySelectorAll('.timeline rect').length") == 20
    assert browser.run("document.querySelectorAll('.timeline rect.failed').length") == 4
    assert "worker 1" in browser.text()
    assert browser.run("location.search") == "", "the key does not stay in the address"
    browser.look(artefacts / "run.png")
    assert browser.faults() == []
    assert browser.complaints == []


def test_the_list_of_runs_tells_how_far_each_is(browser: Browser, watched: dict[str, Any], artefacts: Path) -> None:
    browser.go("#/", "document.querySelector('h1')?.textContent === 'Runs'")
    text = browser.until(
        "[...document.querySelectorAll('tr')].find((one) => one.innerText.startsWith('live'))?.innerText"
    )
    assert "20 of 20" in text
    assert "score 6" in text
    browser.look(artefacts / "runs.png")
    assert browser.faults() == []


def test_a_table_is_chosen_sorted_and_filtered(browser: Browser, watched: dict[str, Any], artefacts: Path) -> None:
    browser.go(
        "#/run/live/table?rows=x&columns=kind&by=none&value=score&stat=mean",
        "document.querySelector('figure img')?.complete",
    )
    grid = "[...document.querySelectorAll('main table tbody tr')].map((one) => one.innerText.split(/\\s+/).join(' '))"
    assert browser.run(grid) == ["1 1 2", "2 2 3", "4 4 5", "5 5 6"]
    browser.run("document.querySelectorAll('button.sort')[1].focus()")
    browser.press("Enter")
    browser.press("Enter")
    assert browser.run(grid) == ["5 5 6", "4 4 5", "2 2 3", "1 1 2"]
    assert browser.run("document.querySelector('th[aria-sort]').getAttribute('aria-sort')") == "descending"
    browser.look(artefacts / "table.png", dark=True)
    assert browser.faults() == []
    browser.run("document.querySelector('#where').value = 'x < 3'; document.querySelector('.filter button').click()")
    browser.until("document.querySelectorAll('main table tbody tr').length === 2")
    assert "where=x" in browser.run("location.hash"), "the address keeps the view"
    browser.run("document.querySelector('#where').value = 'y < 3'; document.querySelector('.filter button').click()")
    browser.until("document.querySelector('.state.error')?.innerText.includes('there is no')")
    browser.look(artefacts / "mistake.png")
    browser.go("#/", "document.querySelector('h1')?.textContent === 'Runs'")
    refused = "400 (Bad Request)"  # the browser itself notes that the question was refused
    assert all(refused in one for one in browser.complaints)
    browser.complaints.clear()


def test_trials_are_paged_picked_and_opened(browser: Browser, watched: dict[str, Any], artefacts: Path) -> None:
    browser.go("#/run/live/trials?sort=score&order=down", "document.querySelector('#trials')")
    assert browser.run("document.querySelectorAll('#trials tbody tr').length") == 20
    assert browser.run("document.querySelector('#trials caption').textContent").startswith("20 of 20 trials")
    browser.run("[...document.querySelectorAll('#trials input')].slice(0, 3).forEach((one) => one.click())")
    browser.look(artefacts / "trials-phone.png", width=390, height=844)
    assert browser.faults() == []
    browser.run("[...document.querySelectorAll('a')].find((one) => one.textContent === 'their curves').click()")
    browser.until(FIGURE)
    assert "Only picked trials" in browser.text()
    assert "by epoch and by second" in browser.text()
    browser.look(artefacts / "curves.png")
    assert browser.faults() == []
    browser.go(
        "#/trial/live/0",
        "document.querySelector('h1')?.textContent === 'Trial 0' && document.querySelectorAll('h2').length > 5",
    )
    assert "Copy as study" in browser.text()
    browser.until(FIGURE)
    browser.look(artefacts / "trial.png")
    assert browser.faults() == []
    assert browser.complaints == []


def test_failures_show_their_traceback_as_text(browser: Browser, watched: dict[str, Any], artefacts: Path) -> None:
    browser.go("#/run/live/failures", "document.querySelector('article pre')")
    assert "three <img src=x onerror=alert(1)> is refused" in browser.text()
    assert "Traceback" in browser.run("document.querySelector('article pre').textContent")
    assert browser.run("document.querySelectorAll('main img').length") == 0
    browser.look(artefacts / "failures.png")
    assert browser.faults() == []
    assert browser.complaints == []


def test_runs_are_compared_and_advice_and_a_front_are_given(
    browser: Browser, watched: dict[str, Any], artefacts: Path
) -> None:
    browser.go("#/run/small/pareto", FIGURE)
    assert browser.faults() == []
    browser.go(
        "#/run/small/plot",
        FIGURE + " && document.querySelector('h2').textContent.startsWith('One measure')",
    )
    browser.go("#/run/small/advice", "document.querySelectorAll('article').length > 3")
    assert EVIL in browser.text()
    assert browser.faults() == []
    browser.go(
        "#/compare?run=small&run=other&rows=batch_size&value=train_s",
        FIGURE + " && document.querySelector('h1').textContent === 'Compare'",
    )
    lines = browser.run("[...document.querySelectorAll('table')[1].rows].map((one) => " + WORDS)
    assert lines[0] == "batch_size small other ÷ small"
    assert lines[1] == "64 19 n = 4 19 n = 4 1"
    browser.look(artefacts / "compare.png", width=1920, height=1080)
    assert browser.faults() == []
    assert browser.complaints == []


def test_a_server_that_is_gone_is_told(
    browser: Browser, place: Path, watched: dict[str, Any], artefacts: Path
) -> None:
    with served(place / "runs" / "small") as other:
        other.ready("small")
        browser.open(other.address)
        browser.until("document.querySelector('#link').textContent === 'live'")
    browser.until("document.querySelector('#link').textContent.startsWith('connection lost')")
    browser.look(artefacts / "lost.png")
    browser.complaints.clear()


@pytest.mark.slow
def test_a_hundred_thousand_trials_are_painted_and_sorted_at_once(browser: Browser, tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", a=map(record, range(100_000)))
    with served(path) as big:
        browser.open(big.address)
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
        assert browser.until(paint) < 2000
        big.ready("run", 60)
        browser.go("#/run/run/trials", "document.querySelector('#trials')")
        times = browser.run(SORTING)
        assert sorted(times)[len(times) // 2] < 200
        assert browser.complaints == []
