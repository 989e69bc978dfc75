# SPDX-License-Identifier: Apache-2.0
"""The scripted server serves also a client that comes late, as on a busy machine."""

from __future__ import annotations

import time
import urllib.request

import pytest

from tests.fakes import scripted_server
from tests.fakes.scripted_server import FakeSlurmrestd


def test_client_that_comes_late_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_server, "GENEROUS_SECONDS", 0.05)
    server = FakeSlurmrestd(answers={"/late": (200, b"served")})

    with scripted_server.scripted_server(server.handle) as address:
        time.sleep(0.2)
        monkeypatch.undo()
        with urllib.request.urlopen(f"{address}/late", timeout=30) as answer:
            assert b"served" == answer.read()
