# SPDX-License-Identifier: Apache-2.0
"""Two portals share an archive in PostgreSQL: one archives jobs; if it is killed, the other does so within a minute."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest

from lab.databases import DatabaseServer, run_postgresql
from tests.fakes.forms import find_form
from tests.processes import PATIENCE_SECONDS, Exporter, run_slurmscope, running, until, values

ELECTED = "slurmscope_reporter_elected"
ROUNDS = "slurmscope_reporter_rounds_total"


@pytest.fixture(scope="module")
def server() -> Iterator[DatabaseServer]:
    with run_postgresql() as server:
        yield server


@pytest.fixture(scope="module")
def flags(server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    slurm = tmp_path_factory.mktemp("simulated") / "slurm"
    run_slurmscope("simulate", "--output", str(slurm), "--jobs", "50", "--nodes", "8")
    return (
        *("--archive.url", server.url, "--archive.password-file", str(server.password_file)),
        *("--slurm.bin-path", str(slurm), "--portal.listen-address", "127.0.0.1:0"),
        *("--reporter.look-back", "10m", "--reporter.interval", "1s"),
    )


def read(portal: Exporter, metric: str) -> list[float]:
    page = httpx.get(f"{portal.addresses[0]}metrics", timeout=PATIENCE_SECONDS).text
    return [*values(page, metric).values()]


def test_killed_portal_is_replaced_and_forms_of_both_are_accepted(flags: tuple[str, ...]) -> None:
    with (
        running("portal", *flags, wait_for="msg=listening") as first,
        running("portal", *flags, "--no-reporter", wait_for="msg=listening") as serving,
    ):
        until(lambda: read(first, ELECTED) == [1])
        until(lambda: read(first, ROUNDS)[0] > 0)
        with running("portal", *flags, wait_for="msg=listening") as second:
            until(lambda: read(second, ELECTED) == [0])
            before = read(first, ROUNDS)[0]
            until(lambda: read(first, ROUNDS)[0] > before + 2)
            assert ([0], [0], []) == (read(second, ELECTED), read(second, ROUNDS), read(serving, ELECTED))
            doctor = run_slurmscope("doctor", "portal", *flags).stdout
            assert f"process {first.process.pid}, since" in doctor

            # A form of one portal is accepted by the others.
            form = find_form(httpx.get(f"{first.addresses[0]}jobs", timeout=PATIENCE_SECONDS).text, "/views")
            assert form is not None
            for portal in (second, serving):
                answer = httpx.post(f"{portal.addresses[0]}views", data={**form.fields, "name": "mine"})
                assert 303 == answer.status_code

            started = time.monotonic()
            first.process.kill()
            until(lambda: read(second, ELECTED) == [1])
            took = time.monotonic() - started
            until(lambda: read(second, ROUNDS)[0] > 0)

            assert took < 60
            assert 0 == second.end()
