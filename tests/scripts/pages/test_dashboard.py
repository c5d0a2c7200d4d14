"""The live page reads the results folder, answers to whom it may, and to nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from common.config import SettingsError
from scripts.moonflower.pages.dashboard import application, check_address
from server_app.experiment.resume import locked
from tests.scripts.experiments.written import line_of, write_experiment

TOKEN = "0123456789abcdef"  # noqa: S105


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return a results folder with one experiment."""
    write_experiment(tmp_path / "output" / "trial", [line_of(1)])
    return tmp_path / "output"


class Visitor:
    """A browser that keeps its cookies."""

    def __init__(self, output: Path, token: str, address: str) -> None:
        self._transport = httpx.ASGITransport(application(output, token))
        self._address, self._cookies = address, httpx.Cookies()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> httpx.Response:
        """Ask for a page."""
        return self.request("GET", path, headers)

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Ask with any method."""

        async def ask() -> httpx.Response:
            async with httpx.AsyncClient(
                transport=self._transport, base_url=self._address, cookies=self._cookies
            ) as client:
                answer = await client.request(method, path, headers=headers)
                self._cookies = client.cookies
                return answer

        return asyncio.run(ask())


def visitor(output: Path, token: str = "", address: str = "http://127.0.0.1:8765") -> Visitor:
    """Return a browser at the dashboard."""
    return Visitor(output, token, address)


def test_experiments_are_listed_with_their_state_and_alarms_come_first(output: Path) -> None:
    line = {**line_of(1), "alarms": ["look at the data"]}
    folder = write_experiment(output / "running", [line], finished=False)
    with locked(folder):
        page = visitor(output).get("/").text
    assert page.index("look at the data") < page.index("trial")
    assert page.index("running") < page.index("trial")
    assert "finished" in page


def test_the_part_that_changes_is_sent_only_when_it_has_changed(output: Path) -> None:
    browser = visitor(output)
    first = browser.get("/experiments/trial?part")
    assert "<html" not in first.text
    mark = {"If-None-Match": first.headers["etag"]}
    assert browser.get("/experiments/trial?part", headers=mark).status_code == 304
    with (output / "trial" / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line_of(2)) + "\n")
    later = browser.get("/experiments/trial?part", headers=mark)
    assert later.status_code == 200
    assert "2 / 4" in later.text


def test_who_is_online_is_said_while_it_runs(output: Path) -> None:
    folder = write_experiment(output / "running", [line_of(1)], finished=False)
    (folder / "activity.json").write_text('{"round": 2, "clients": ["north", "south"]}')
    with locked(folder):
        assert "Online: north, south." in visitor(output).get("/experiments/running").text
    assert "Online" not in visitor(output).get("/experiments/running").text


@pytest.mark.parametrize(
    "path",
    [
        "/experiments/..%2f..%2fetc", "/experiments/%2e%2e", "/experiments/../secret",
        "/experiments/absent", "/experiments/link", "/experiments/inside-out",
        "/experiments/trial%2fmetrics.jsonl", "/experiments/trial/metrics.jsonl",
        "/experiments/.lock", "/experiments/trial%00", "//etc/passwd", "/metrics.jsonl",
    ],
)  # fmt: skip
def test_tricks_with_paths_are_not_found(output: Path, tmp_path: Path, path: str) -> None:
    secret = write_experiment(tmp_path / "secret", [line_of(1)])
    (output / "link").symlink_to(secret)
    inside_out = write_experiment(output / "inside-out", [])
    (inside_out / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    assert visitor(output).get(path).status_code == 404


def test_another_sites_name_for_this_machine_is_refused(output: Path) -> None:
    for address in ("http://evil.example:8765", "http://127.0.0.1.evil.example"):
        assert visitor(output, address=address).get("/").status_code == 400
    for address in ("http://localhost:8765", "http://127.0.0.1:1", "http://[::1]:8765"):
        assert visitor(output, address=address).get("/").status_code == 200


def test_nothing_but_reading_is_possible(output: Path) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert visitor(output).request(method, "/experiments/trial").status_code == 405


def test_a_page_may_load_nothing_from_elsewhere(output: Path) -> None:
    headers = visitor(output).get("/").headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"


def test_with_a_token_only_who_knows_it_is_let_in(output: Path) -> None:
    browser = visitor(output, TOKEN, "http://server.example:8765")
    assert browser.get("/").status_code == 401
    assert browser.get("/?token=wrong").status_code == 401
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert browser.get("/", headers=bearer).status_code == 200
    came = browser.get(f"/experiments/trial?token={TOKEN}")
    assert (came.status_code, came.headers["location"]) == (303, "/experiments/trial")
    assert "HttpOnly" in came.headers["set-cookie"]
    assert browser.get("/experiments/trial").status_code == 200
    other = visitor(output, TOKEN, "http://server.example:8765")
    assert other.get(f"/%2Fevil.example/?token={TOKEN}").headers["location"] == "/evil.example/"


def test_another_address_than_the_loopback_needs_a_token_that_is_long_enough() -> None:
    for host in ("127.0.0.1", "localhost", "::1"):
        check_address(host, "")
    check_address("0.0.0.0", TOKEN)  # noqa: S104
    for host, token in (("0.0.0.0", ""), ("server", ""), ("127.0.0.1", "short")):  # noqa: S104
        with pytest.raises(SettingsError, match="16"):
            check_address(host, token)
