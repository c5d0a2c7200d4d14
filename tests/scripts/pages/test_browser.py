"""Pages as a real Chromium shows them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from scripts.moonflower.pages.dashboard import application
from scripts.moonflower.pages.page import write_report
from server_app.experiment.resume import locked
from tests.scripts.experiments.written import facts_of, line_of, write_experiment
from tests.scripts.pages.browser import CHROMIUM, DESKTOP, PHONE, Page, browser

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium"),
]

PICTURES = """
[...document.querySelectorAll("figure svg[role=img]")].map((each) => {
  const box = each.getBoundingClientRect();
  const drawn = each.querySelector("path.curve, image, circle");
  return [box.width, box.height, drawn !== null && drawn.getBoundingClientRect().width];
})
"""
FITS = "document.documentElement.scrollWidth <= window.innerWidth"


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    """Return a tab of a Chromium of its own."""
    with browser(tmp_path / "browser") as tab:
        yield tab


def refused(number: int) -> dict[str, Any]:
    """Return a round with an alarm and a refusal."""
    line = line_of(number)
    return {**line, "alarms": ["look"], "refused": {"client-0001": "not finite"}}


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_shows_every_picture_without_an_error(
    tmp_path: Path, page: Page, size: tuple[int, int], scheme: str
) -> None:
    folder = write_experiment(tmp_path / "trial", [refused(n) for n in (1, 2, 3)])
    page.shown_as(size, scheme)
    page.open(write_report(folder).as_uri())
    pictures = page.evaluate(PICTURES)
    assert len(pictures) >= 8
    assert all(width > 250 and height > 40 and drawn for width, height, drawn in pictures)
    assert page.evaluate(FITS), "the page is wider than the window"
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(18, 22, 28)") == (scheme == "dark")
    assert page.errors == []


@pytest.mark.long
def test_two_hundred_clients_and_two_thousand_rounds_stay_small(tmp_path: Path, page: Page) -> None:
    lines = [line_of(n, clients=200, classes=10) for n in range(1, 2001)]
    folder = write_experiment(tmp_path / "huge", lines, facts_of("huge", 200, 10))
    report = write_report(folder)
    assert report.stat().st_size < 5_000_000
    page.open(report.as_uri())
    # No seconds are asserted, since machines differ: what takes them is the number of elements.
    assert page.evaluate("document.querySelectorAll('*').length") < 10_000
    assert page.errors == []


def test_the_live_page_grows_while_a_run_goes_on(tmp_path: Path, page: Page) -> None:
    output = tmp_path / "output"
    folder = write_experiment(output / "trial", [line_of(1)], finished=False)
    config = uvicorn.Config(application(output), port=0, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    with locked(folder):
        thread.start()
        try:
            while not server.started:
                thread.join(0.05)
            port = server.servers[0].sockets[0].getsockname()[1]
            page.open(f"http://127.0.0.1:{port}/")
            page.evaluate("document.querySelector('main a').click()")
            page.until("document.querySelector('.tile .value')?.textContent === '1 / 4'")
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(line_of(2)) + "\n")
            page.until("document.querySelector('.tile .value').textContent === '2 / 4'")
            assert page.evaluate("document.getElementById('said').textContent") == "live"
            assert page.errors == []
        finally:
            server.should_exit = True
            thread.join()
