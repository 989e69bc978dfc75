# SPDX-License-Identifier: Apache-2.0
"""The ways to the endpoint are tried in a fixed order, with the credentials that there are."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest

from slurmscope.core.errors import CommandFailed, CommandMissing, CommandTimedOut
from slurmscope.run import delivery as module
from slurmscope.run.delivery import find_ways, parse_endpoint

ABSENT = Path("/nonexistent/trace.sock")


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("localhost:8092", "http://localhost:8092/trace"),
        ("node1", "http://node1:80/trace"),
        ("http://exporter:9092", "http://exporter:9092/trace"),
        ("http://exporter:9092/", "http://exporter:9092/trace"),
        ("https://exporter/other/path", "https://exporter:443/other/path"),
        ("[::1]:9092", "http://[::1]:9092/trace"),
        ("unix:/run/x.sock", "unix:/run/x.sock"),
    ],
)
def test_address_is_taken_as_older_scripts_write_it(given: str, address: str) -> None:
    assert address == str(parse_endpoint(given))


@pytest.mark.parametrize("given", ["ftp://x", "http://", "http://u:p@h/", "a b", "x\ny", "http://h:99999"])
def test_other_addresses_are_refused(given: str) -> None:
    with pytest.raises(ValueError, match="the address is not of the form"):
        parse_endpoint(given)


def run_program(*program: str) -> module.StartHelper:
    return lambda _start: subprocess.Popen(program, stdout=subprocess.PIPE)


@pytest.mark.parametrize(
    ("token", "wants_munge", "names"),
    [
        ("", False, ["plain"]),
        ("v1.x", False, ["token"]),
        ("", True, ["munge"]),
        ("v1.x", True, ["token", "munge"]),
        ("not a token", False, []),
    ],
)
def test_order_of_the_ways(token: str, wants_munge: bool, names: list[str], tmp_path: Path) -> None:
    endpoint = parse_endpoint("localhost:9092")
    munge = run_program("true") if wants_munge else None
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))

    without, with_socket = (
        [way.name for way in find_ways(place, endpoint, token=token, munge=munge)] for place in (ABSENT, path)
    )

    assert names == without
    assert ["socket", *names] == with_socket


def test_nothing_is_sent_anywhere_without_an_address(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert () == find_ways(ABSENT, None, token="v1.x", munge=None)
    assert () == find_ways(file, None, token="", munge=None)


def sign_with(*program: str) -> object:
    (way,) = find_ways(ABSENT, parse_endpoint("localhost:9092"), token="", munge=run_program(*program))
    return way.credential(b"body")


def test_credential_of_munge_is_a_header() -> None:
    assert {"Authorization": "Munge MUNGE:AwQ=:"} == sign_with("echo", "MUNGE:AwQ=:")


def test_munge_that_fails_makes_no_header() -> None:
    with pytest.raises(CommandFailed, match="is munged running"):
        sign_with("false")
    with pytest.raises(CommandFailed, match="is munged running"):
        sign_with("printf", "MUNGE:a\\r\\nX-Other: b:")


def test_absent_munge_is_named() -> None:
    with pytest.raises(CommandMissing, match="cannot run munge"):
        sign_with("/nonexistent/munge")


def test_munge_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MUNGE_TIMEOUT_SECONDS", 0.1)

    with pytest.raises(CommandTimedOut, match="munge timed out"):
        sign_with("sleep", "60")
