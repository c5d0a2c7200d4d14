"""A live page over the results folder: what is on disk, read again and again, never written."""

from __future__ import annotations

import hashlib
import ipaddress
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from common.config import SettingsError, check_name
from scripts.moonflower.experiments.experiment import (
    Experiment,
    NotAnExperimentError,
    State,
    experiment_folders,
    is_experiment,
    read_experiment,
)
from scripts.moonflower.experiments.metrics_file import MetricsFile
from scripts.moonflower.pages.page import TEMPLATES, online_of, render, report, row_of, view_of
from scripts.moonflower.pages.participation import alarms_of
from server_app.experiment.layout import (
    ACTIVITY_FILE,
    FINAL,
    LOCK_FILE,
    METRICS_FILE,
    SETTINGS_FILE,
)

LOOPBACK = ("127.0.0.1", "localhost", "[")
"""What a Host header may begin with, up to a colon. The last is an IPv6 address: no name of
another site's, and only names can be made to lead here (DNS rebinding)."""

COOKIE = "moonflower-dashboard"
SHORTEST_TOKEN = 16
MOST_KEPT = 4
"""Experiments whose lines stay in memory: those looked at last."""

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


class NotFoundError(HTTPException):
    """There is no such page; it says nothing about what else there may be."""

    def __init__(self) -> None:
        super().__init__(404, "There is no such page.")


@dataclass
class Results:
    """The results folder as the pages see it.

    Attributes
    ----------
    output : Path
    """

    output: Path
    _lines: dict[str, MetricsFile] = field(default_factory=dict)
    _pages: dict[str, tuple[str, str]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def experiment(self, name: str) -> Experiment:
        """Return an experiment as it is now.

        Raises
        ------
        NotFoundError
            ``name`` is none's in this folder, or leads out of it.
        """
        try:
            folder = self.output / check_name(name, "experiment")
        except SettingsError:
            raise NotFoundError from None
        if not is_experiment(folder) or not self._is_inside(folder):
            raise NotFoundError
        with self._lock:
            metrics = self._lines.pop(name, None) or MetricsFile(folder / METRICS_FILE)
            self._lines[name] = metrics
            while len(self._lines) > MOST_KEPT:
                del self._lines[next(iter(self._lines))]
            try:
                return read_experiment(folder, metrics)
            except NotAnExperimentError:
                raise NotFoundError from None

    def all(self) -> list[Experiment]:
        """Return all experiments: running ones first, then the newest."""
        found = [
            read_experiment(folder, MetricsFile(folder / METRICS_FILE, newest_only=True))
            for folder in experiment_folders(self.output)
            if self._is_inside(folder)
        ]
        return sorted(found, key=lambda e: (e.state is not State.RUNNING, -e.changed.timestamp()))

    def page(self, key: str, state: str, make: Callable[[], str]) -> tuple[str, str]:
        """Return a page and its mark, made anew only where ``state`` is another than before."""
        mark = f'"{hashlib.sha256(state.encode()).hexdigest()[:32]}"'
        with self._lock:
            kept = self._pages.get(key)
        if kept and kept[0] == mark:
            return kept
        made = (mark, make())
        with self._lock:
            self._pages.pop(key, None)
            self._pages[key] = made
            while len(self._pages) > MOST_KEPT:
                del self._pages[next(iter(self._pages))]
        return made

    def _is_inside(self, folder: Path) -> bool:
        """Return whether all that is read of a folder lies below the results folder."""
        root = self.output.resolve()
        names = (SETTINGS_FILE, METRICS_FILE, ACTIVITY_FILE, LOCK_FILE, f"{FINAL}/model.json")
        return all((folder / name).resolve().is_relative_to(root) for name in ("", *names))


def application(output: Path, token: str = "", more: Sequence[BaseRoute] = ()) -> Starlette:
    """Return the dashboard.

    Parameters
    ----------
    output : Path
        The results folder.
    token : str
        What a visitor has to know, once per browser; "": nothing, and then only the names of this
        machine's loopback are answered, so that no other site's page can ask in a browser.
    more : Sequence[BaseRoute]
        Further routes, such as ``/metrics``.
    """
    results = Results(output)

    def home(request: Request) -> Response:
        experiments = results.all()
        state = repr([_state(each) for each in experiments])
        return _answer(request, results, "", state, "list", {"views": _summaries(experiments)})

    def one(request: Request) -> Response:
        experiment = results.experiment(request.path_params["name"])
        state = _state(experiment)

        def make() -> dict[str, object]:
            return {"view": view_of(experiment)}

        return _answer(request, results, experiment.name, state, "experiment", make)

    def as_report(request: Request) -> Response:
        return HTMLResponse(report([results.experiment(request.path_params["name"])]))

    def script(_request: Request) -> Response:
        text = (TEMPLATES / "live.js").read_text(encoding="utf-8")
        return Response(text, media_type="text/javascript")

    routes = [
        Route("/", home),
        Route("/live.js", script),
        Route("/experiments/{name}", one),
        Route("/experiments/{name}/report", as_report),
        *more,
    ]
    middleware = [Middleware(_Safe)]
    if token:
        middleware.append(Middleware(_Known, token=token))
    else:
        middleware.append(Middleware(TrustedHostMiddleware, allowed_hosts=list(LOOPBACK)))
    return Starlette(routes=routes, middleware=middleware)


def check_address(host: str, token: str) -> None:
    """Refuse an address that others can reach without a token.

    Raises
    ------
    SettingsError
        ``host`` is not the loopback and there is no token, or a short one.
    """
    if token and len(token) < SHORTEST_TOKEN:
        raise SettingsError(
            f"the token has {len(token)} characters: it needs {SHORTEST_TOKEN} or more, as from "
            "`openssl rand -hex 16`"
        )
    if not token and not _is_loopback(host):
        raise SettingsError(
            f"--host {host} can be reached from other machines, and then a token is needed: set "
            "MOONFLOWER_DASHBOARD_TOKEN (or --token) to 16 characters or more, as from `openssl "
            "rand -hex 16`. Without --host the page is for this machine only"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _state(experiment: Experiment) -> str:
    """Return what a page about it depends on."""
    newest = experiment.lines[-1] if experiment.lines else {}
    e = experiment
    counts = (len(e.lines), e.rounds, e.num_rounds, e.changed)
    return repr((e.name, e.state, e.facts.get("id"), counts, e.activity, list(e.problems), newest))


def _summaries(experiments: Sequence[Experiment]) -> list[dict[str, object]]:
    return [
        {
            "row": row_of(experiment),
            "alarms": alarms_of(experiment.lines[-1:]),
            "online": None if (online := online_of(experiment)) is None else len(online),
        }
        for experiment in experiments
    ]


def _answer(
    request: Request,
    results: Results,
    name: str,
    state: str,
    template: str,
    values: dict[str, object] | Callable[[], dict[str, object]],
) -> Response:
    """Return a page, or only the part of it that changes, or that nothing has changed."""

    def make() -> str:
        return render(f"live_{template}.html", **(values() if callable(values) else values))

    mark, text = results.page(name, state, make)
    if "part" in request.query_params:
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers={"ETag": mark})
        return HTMLResponse(text, headers={"ETag": mark})
    return HTMLResponse(render("live.html", title=name or "Experiments", name=name, part=text))


class _Safe:
    """Lets nothing but reading through, and says to browsers what a page may do."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD"):
            response = Response("Only reading is possible here.", 405, {"Allow": "GET, HEAD"})
            await response(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                pairs = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message["headers"] = [*message.get("headers", []), *pairs]
            await send(message)

        await self._app(scope, receive, guarded)


class _Known:
    """Lets through who knows the token: from a cookie, a bearer's header, or once the address."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if given := request.query_params.get("token"):
            await self._login(request, given)(scope, receive, send)
            return
        bearer = Headers(scope=scope).get("authorization", "").removeprefix("Bearer ")
        if self._is_right(request.cookies.get(COOKIE, "")) or self._is_right(bearer):
            await self._app(scope, receive, send)
            return
        await _refusal()(scope, receive, send)

    def _login(self, request: Request, given: str) -> Callable[..., Awaitable[None]]:
        if not self._is_right(given):
            return _refusal()
        # The path alone: an address in another place is none of ours.
        response = RedirectResponse("/" + request.url.path.lstrip("/"), status_code=303)
        response.set_cookie(
            COOKIE,
            self._token,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return response

    def _is_right(self, given: str) -> bool:
        return secrets.compare_digest(given.encode(), self._token.encode())


def _refusal() -> Response:
    return Response(
        "Open the address with ?token=... at its end: the token that the dashboard was started "
        "with.",
        401,
        {"WWW-Authenticate": "Bearer"},
    )
