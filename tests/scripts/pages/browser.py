"""A real Chromium without a window, driven by its own protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
PATIENCE = 60.0
DESKTOP, PHONE = (1240, 900), (390, 844)


class Page:
    """One tab.

    Attributes
    ----------
    errors : list[str]
        What its console said that is an error or a warning, and requests that failed.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.errors: list[str] = []
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; what happens meanwhile is noted."""
        number = next(self._numbers)
        self._socket.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._socket.recv(timeout=PATIENCE))
            if message.get("id") == number:
                assert "error" not in message, message
                return dict(message["result"])
            self._note(message)

    def open(self, address: str) -> float:
        """Go to an address and return the seconds until all of it was loaded."""
        self._loaded = False
        began = time.monotonic()
        self.ask("Page.navigate", url=address)
        while not self._loaded:
            self._note(json.loads(self._socket.recv(timeout=PATIENCE)))
        return time.monotonic() - began

    def shown_as(self, size: tuple[int, int], scheme: str) -> None:
        """Make the window so large, and prefer ``light`` or ``dark``."""
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=size[0],
            height=size[1],
            deviceScaleFactor=1,
            mobile=size == PHONE,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", features=features)

    def evaluate(self, script: str) -> Any:
        """Return the value of JavaScript, of a promise what it comes to."""
        answer = self.ask(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, script: str) -> None:
        """Wait until JavaScript is true."""
        end = time.monotonic() + PATIENCE
        while not self.evaluate(script):
            assert time.monotonic() < end, f"it never came true: {script}"
            time.sleep(0.1)

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        """Write what is shown, the whole page or the window, as PNG."""
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _note(self, message: dict[str, Any]) -> None:
        parameters = message.get("params", {})
        match message.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.loadingFailed" if parameters.get("canceled"):
                pass  # left for another page
            case "Runtime.exceptionThrown" | "Network.loadingFailed":
                self.errors.append(json.dumps(parameters))
            case "Runtime.consoleAPICalled" if parameters["type"] in ("error", "warning"):
                self.errors.append(json.dumps(parameters["args"]))
            case "Log.entryAdded" if parameters["entry"]["level"] in ("error", "warning"):
                self.errors.append(parameters["entry"]["text"])


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start Chromium with a profile of its own in ``folder``, and end it."""
    assert CHROMIUM is not None
    arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    process = subprocess.Popen(
        [
            CHROMIUM,
            *arguments,
            "--no-first-run",
            "--disable-extensions",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(folder)},
    )
    try:
        page = f"http://127.0.0.1:{_port(process)}/json/list"
        tabs = httpx.get(page, timeout=PATIENCE, trust_env=False).json()
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        with connect(address, max_size=None, open_timeout=PATIENCE, proxy=None) as socket:
            yield Page(socket)
    finally:
        process.terminate()
        process.wait(timeout=PATIENCE)


def _port(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if found := re.search(r"DevTools listening on ws://127\.0\.0\.1:(\d+)/", line):
            return found[1]
    raise AssertionError("Chromium did not start:\n" + "".join(said[-20:]))
