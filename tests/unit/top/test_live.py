# SPDX-License-Identifier: Apache-2.0
"""``slurmscope top`` in a pseudo terminal shows the numbers of hand-made pages, and leaves the terminal as it was."""

from __future__ import annotations

import itertools
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.command_line import run_here
from tests.fakes.scripted_server import read_whole_request, scripted_server
from tests.fakes.slurm_scripts import make_commands
from tests.fakes.terminal import Terminal


def _page(number: int) -> str:
    """Return a page of an agent: with each page, job 12 has used two core-seconds more for each second."""
    seconds = time.monotonic()
    hostile = "evil\x1b]0;owned\x07\u202e"
    return (
        "# TYPE jobs_on_node gauge\njobs_on_node 2\n"
        "# TYPE jobs_info gauge\n"
        f'jobs_info{{slurm_job="12",slurm_node="n1",user="{hostile}",account="physics",has_ended="false"}} 1\n'
        'jobs_info{slurm_job="13",slurm_node="n1",user="bob",account="",has_ended="false"} 1\n'
        'jobs_info{slurm_job="14",slurm_node="n1",user="bob",account="",has_ended="true"} 1\n'
        "# TYPE jobs_cpu_seconds_total counter\n"
        f'jobs_cpu_seconds_total{{slurm_job="12",slurm_node="n1"}} {2 * seconds}\n'
        f'jobs_cpu_seconds_total{{slurm_job="13",slurm_node="n1"}} 5\n'
        "# TYPE jobs_cores gauge\n"
        'jobs_cores{slurm_job="12",slurm_node="n1"} 4\njobs_cores{slurm_job="13",slurm_node="n1"} 2\n'
        "# TYPE jobs_memory_anon_bytes gauge\n"
        f'jobs_memory_anon_bytes{{slurm_job="13",slurm_node="n1"}} {1 << 30}\n'
    )


@pytest.fixture
def agent() -> Iterator[str]:
    numbers = itertools.count()

    def serve(connection: socket.socket) -> None:
        read_whole_request(connection)
        body = _page(next(numbers)).encode()
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)

    with scripted_server(serve) as url:
        yield url


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """Answer as squeue does: job 12 is a task of an array that has run for half of its hour."""
    script = r"""
mark=$(printf '%s' "$*" | sed 's/.*--Format=JobID:\([^,]*\),.*/\1/')
row() { for cell in "$@"; do printf '%s%s' "$cell" "$mark"; done; printf '%s\n' "$mark"; }
row 12 9 3 N/A N/A 30:00 1:00:00 1 4 ada "$(printf 'n\033[2Jm')"
"""
    return make_commands(tmp_path / "bin", {"squeue": script})


def _argv(agent: str, slurm: Path, *more: str) -> list[str]:
    command = [sys.executable, "-m", "slurmscope", "top", "--node", agent, "--interval", "1"]
    return [*command, "--slurm.bin-path", str(slurm), *more]


def test_screen_is_live_and_keys_sort_and_filter(agent: str, slurm: Path) -> None:
    with Terminal(_argv(agent, slurm)) as terminal:
        shown = terminal.wait_for("9_3")
        assert "\\u001b" in shown  # names are escaped, or the screen would have refused them
        terminal.wait_for("50 %")  # of its time, and of its cores
        assert {"?1049", "?25"} & terminal.screen.modes == {"?1049"}
        lines = terminal.screen.lines
        order = [line.split()[0] for line in lines if line.split()[:1] in (["9_3"], ["13"])]
        assert ["9_3", "13"] == order
        terminal.type("m")
        terminal.wait_for("by memory")
        lines = terminal.screen.lines
        assert ["13", "9_3"] == [line.split()[0] for line in lines if line.split()[:1] in (["9_3"], ["13"])]
        terminal.type("/BOB\r")
        terminal.wait_for("1 job, ")
        assert "9_3" not in terminal.screen.text
        terminal.type("q")
        assert 0 == terminal.wait_end()
        assert set() == terminal.screen.modes & {"?1049"}
        assert terminal.settings_before == terminal.settings


def test_terminal_is_restored_after_sigterm_and_colors_obey(agent: str, slurm: Path) -> None:
    with Terminal(_argv(agent, slurm), environment={"NO_COLOR": "1"}) as terminal:
        terminal.wait_for("JOB")
        terminal.process.send_signal(signal.SIGTERM)
        assert 128 + signal.SIGTERM == terminal.wait_end()
        assert terminal.settings_before == terminal.settings
        assert set() == terminal.screen.styles


def test_unreachable_agent_is_one_sentence_and_keys_still_work(slurm: Path) -> None:
    with Terminal(_argv("127.0.0.1:1", slurm)) as terminal:
        shown = terminal.wait_for("unreachable")
        assert "trying again every 1 s" in shown or "Connection refused" in shown
        terminal.type("q")
        assert 0 == terminal.wait_end()


def test_small_terminal_is_told(agent: str, slurm: Path) -> None:
    with Terminal(_argv(agent, slurm), columns=30, lines=10) as terminal:
        terminal.wait_for("The terminal is too small")
        terminal.type("q")
        assert 0 == terminal.wait_end()


def test_once_is_plain_text_with_rates(agent: str, slurm: Path) -> None:
    done = run_here("top", "--node", agent, "--interval", "1", "--once", "--slurm.bin-path", str(slurm))

    assert (0, "") == (done.returncode, done.stderr)
    assert "\x1b" not in done.stdout
    (row,) = (line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["9_3"])
    used, _, cores = row[3].partition("/")
    assert "4" == cores
    assert 1.5 < float(used) < 2.5
    (other,) = (line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["13"])
    assert "0/2" == other[3]


def test_sources_that_fail_are_one_sentence(slurm: Path) -> None:
    def refuse(connection: socket.socket) -> None:
        read_whole_request(connection)
        connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")

    with scripted_server(refuse) as url:
        locked = run_here("top", "--node", url, "--once", "--slurm.bin-path", str(slurm))
    absent = run_here("top", "--node", "127.0.0.1:1", "--once", "--slurm.bin-path", str(slurm))
    wrong = run_here("top", "--node", "a b", "--once")

    assert [2, 2, 2] == [locked.returncode, absent.returncode, wrong.returncode]
    assert "requires a password" in locked.stderr
    assert "unreachable" in absent.stderr
    assert "--node: a b is not HOST" in wrong.stderr
    assert all(1 == done.stderr.count("\n") for done in (locked, absent, wrong))


def test_output_that_is_no_terminal_is_printed_once(agent: str, slurm: Path) -> None:
    assert "9_3" in run_here(*_argv(agent, slurm)[3:]).stdout
