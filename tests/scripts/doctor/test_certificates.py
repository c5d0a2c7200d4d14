"""What a certificate's clients would say, said on the server."""

from __future__ import annotations

from typing import Any

import pytest

from scripts.moonflower.doctor.bundle import Bundle
from scripts.moonflower.doctor.certificates import check_ca, check_server_certificate
from scripts.moonflower.doctor.findings import Finding
from tests.scripts.doctor.bundles import Authority


def problems(bundle: Bundle) -> list[Finding]:
    return [each for each in check_server_certificate(bundle) if each.status != "ok"]


def test_a_certificate_with_all_names_is_accepted(server: Bundle) -> None:
    found = list(check_server_certificate(server))
    assert {each.status for each in found} == {"ok"}
    named = {each.check for each in found if each.check.startswith("certificate for")}
    assert named == {f"certificate for {n}" for n in ("fence.example", "localhost", "127.0.0.1")}
    assert [each.status for each in check_ca(server)] == ["ok"]


@pytest.mark.parametrize(
    ("issued", "status", "said"),
    [
        ({"days": 29}, "warning", "expires in 28 days"),
        ({"days": -0.1, "begins": -9}, "failed", "expired on"),
        ({"begins": 0.5}, "failed", "is valid from"),
        ({"names": ("localhost", "127.0.0.1")}, "failed", "fence.example"),
        ({"names": ()}, "failed", "It names -"),
    ],
)
def test_dates_and_names_that_do_not_fit_are_said(
    server: Bundle, authority: Authority, issued: dict[str, Any], status: str, said: str
) -> None:
    authority.issue(server.folder, **issued)
    found = problems(server)
    assert found[0].status == status
    assert any(said in f"{each.check}: {each.found}" for each in found)
    assert all(each.remedy for each in found)


def test_a_certificate_of_another_ca_is_refused(server: Bundle) -> None:
    Authority.make().issue(server.folder)
    found = problems(server)
    assert [each.status for each in found] == ["failed"] * 3
    assert all("a client refuses it" in each.found for each in found)


def test_the_key_of_another_certificate_is_said(server: Bundle, authority: Authority) -> None:
    first = server.file("server.crt").read_bytes()
    authority.issue(server.folder)
    server.file("server.crt").write_bytes(first)
    assert "is not the private key of" in problems(server)[0].found


@pytest.mark.parametrize("name", ["ca.crt", "server.crt"])
def test_a_file_that_is_no_certificate_is_said(server: Bundle, name: str) -> None:
    server.file(name).write_text("hello\n")
    found = [*check_ca(server), *check_server_certificate(server)]
    assert any(f"{name} is no PEM certificate" in each.found for each in found)
