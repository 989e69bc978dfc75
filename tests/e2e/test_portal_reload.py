# SPDX-License-Identifier: Apache-2.0
"""SIGHUP makes the portal load its configuration again; it never ends it."""

from __future__ import annotations

import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import PATIENCE_SECONDS, Exporter, running, until

CONFIG = """
[archive]
url = "{folder}/archive.db"
[portal]
mode = "local"
listen-address = "127.0.0.1:0"
title = "{name}"
"""


@pytest.fixture
def portal(tmp_path: Path) -> Iterator[Exporter]:
    """Run a portal without Slurm."""
    file = write_config(tmp_path, "first")
    with running(
        "portal", "--config.file", str(file), "--slurm.bin-path", str(tmp_path), wait_for="msg=listening"
    ) as it:
        yield it


def write_config(folder: Path, name: str) -> Path:
    file = folder / "portal.toml"
    file.write_text(CONFIG.format(folder=folder, name=name))
    return file


def page(portal: Exporter) -> str:
    with urllib.request.urlopen(portal.addresses[0], timeout=PATIENCE_SECONDS) as answer:
        return str(answer.read().decode())


def has_logged(portal: Exporter, text: str) -> bool:
    return any(text in line for line in portal.log)


def test_sighup_loads_the_configuration_again(portal: Exporter, tmp_path: Path) -> None:
    assert "first" in page(portal)

    write_config(tmp_path, "second")
    portal.process.send_signal(signal.SIGHUP)
    until(lambda: has_logged(portal, "configuration reloaded") or portal.process.poll() is not None)

    assert "second" in page(portal)
    assert 0 == portal.end()


def test_invalid_configuration_leaves_the_old_one_in_force(portal: Exporter, tmp_path: Path) -> None:
    (tmp_path / "portal.toml").write_text("nonsense =")
    portal.process.send_signal(signal.SIGHUP)
    until(lambda: has_logged(portal, "configuration not reloaded") or portal.process.poll() is not None)

    assert "first" in page(portal)
    assert 0 == portal.end()
