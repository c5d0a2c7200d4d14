"""As much of an MLflow server as a run talks to, in this process, that can be killed."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeMlflow:
    """Remembers what was logged.

    Attributes
    ----------
    steps : list[int]
        Of the metric ``train/loss``, in the order in which they came.
    ends_after : int
        The server is gone after the step; 0: it stays.
    gone : threading.Event
    """

    def __init__(self, ends_after: int = 0) -> None:
        self.steps: list[int] = []
        self.ends_after = ends_after
        self.gone = threading.Event()
        self.started = threading.Event()

    def answer(self, call: str, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a call of MLflow's REST API."""
        info = {
            "run_id": "r", "run_uuid": "r", "experiment_id": "1", "status": "RUNNING",
            "lifecycle_stage": "active", "start_time": 1, "artifact_uri": "file:///nowhere",
        }  # fmt: skip
        if call == "experiments/get-by-name":
            return {"experiment": {"experiment_id": "1", "name": "moonflower"}}
        if call == "runs/create":
            return {"run": {"info": info, "data": {}}}
        if call == "runs/log-batch":
            new = [each["step"] for each in body.get("metrics", ()) if each["key"] == "train/loss"]
            self.steps += [int(step) for step in new]
            self.started.set()
            if self.ends_after and self.steps and self.steps[-1] >= self.ends_after:
                self.gone.set()
        return {}


@contextmanager
def serving(fake: FakeMlflow) -> Iterator[str]:
    """Serve until the block ends or the fake is gone; yield the URI."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            call = self.path.partition("?")[0].removeprefix("/api/2.0/mlflow/")
            answer = json.dumps(fake.answer(call, body)).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PATCH = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    ended = threading.Event()

    def end_when_gone() -> None:
        fake.gone.wait()
        server.shutdown()
        server.server_close()
        ended.set()

    threading.Thread(target=server.serve_forever, daemon=True).start()
    threading.Thread(target=end_when_gone, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        fake.gone.set()
        ended.wait()
