# SPDX-License-Identifier: Apache-2.0
"""``slurmscope report`` is fit for pipes, terminals of any width, and names that mean harm."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import pwd
import re
import socket
import struct
import subprocess
import sys
import termios
import time
import unicodedata
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes.archive_file import WIDE_NAME, write_archive
from tests.fakes.browser import PortalClient
from tests.fakes.command_line import run_here
from tests.fakes.portal_backend import make_backend
from tests.fakes.scripted_server import read_whole_request, scripted_server
from tests.fakes.slurm_scripts import make_commands
from tests.processes import PATIENCE_SECONDS

OUR_COLORS = re.compile(r"\x1b\[[0-9;]*m")


def _argv(archive: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "slurmscope", "report", "--archive.url", str(archive), *arguments]


def _run_raw(archive: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> bytes:
    """Run the command into a pipe, and return the bytes that come out of it."""
    done = subprocess.run(
        _argv(archive, *arguments),
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    assert (0, b"") == (done.returncode, done.stderr)
    return done.stdout


def _run_in_terminal(archive: Path, *arguments: str, columns: int = 80, environment: Mapping[str, str] = {}) -> str:
    """Run the command in a terminal of its own."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    unset = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "NO_COLOR", "TERM"}}
    process = subprocess.Popen(
        _argv(archive, *arguments),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**unset, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    shown = bytearray()
    try:
        # At the end of the last writer a terminal fails to be read.
        while part := os.read(ours, 65536):
            shown += part
    except OSError:
        pass
    finally:
        os.close(ours)
        assert 0 == process.wait(PATIENCE_SECONDS)
    return shown.decode().replace("\r\n", "\n")


def _columns(line: str) -> int:
    """Count columns as terminals do: wide characters take two, marks none."""
    widths = {"W": 2, "F": 2}
    return sum(0 if unicodedata.combining(c) else widths.get(unicodedata.east_asian_width(c), 1) for c in line)


def test_report_says_what_was_asked_and_used(shared_archive: Path) -> None:
    text = run_here("report", "12", "--archive.url", str(shared_archive)).stdout

    # Two of four cores; 0.8 of 8 GiB.
    assert re.search(r"CPU .* 50 %.* 2 of 4 cores busy", text)
    assert re.search(r"Memory .* 10 %.* 819 MiB of 8 GiB", text)
    assert "#SBATCH --cpus-per-task=2" in text
    assert 80 == max(_columns(line) for line in text.splitlines())


@pytest.mark.parametrize("format", ["text", "json"])
def test_reader_that_leaves_is_no_fault(shared_archive: Path, format: str) -> None:
    process = subprocess.Popen(
        _argv(shared_archive, "12", "--format", format), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, complaint = process.communicate(timeout=PATIENCE_SECONDS)

    assert (0, b"") == (process.returncode, complaint)


@pytest.mark.parametrize(
    ("environment", "encoding", "name"),
    [
        ({"LC_ALL": "C"}, "utf-8", WIDE_NAME),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, "ascii", "gr?n ? ?? ?"),
        ({"PYTHONIOENCODING": "latin-1"}, "latin-1", "grün ? ?? ?"),
    ],
)
def test_characters_that_the_locale_lacks_are_replaced(
    shared_archive: Path, environment: dict[str, str], encoding: str, name: str
) -> None:
    text = _run_raw(shared_archive, "14", environment=environment).decode(encoding)

    assert f"Job 14: {name}" in text


def test_json_is_utf8_in_every_locale(shared_archive: Path) -> None:
    made = _run_raw(shared_archive, "14", "-f", "json", environment={"PYTHONIOENCODING": "latin-1"})

    assert WIDE_NAME in json.dumps(json.loads(made), ensure_ascii=False)


@pytest.mark.parametrize(("columns", "job"), [(40, "13"), (60, "14")])
def test_no_line_is_wider_than_the_terminal(shared_archive: Path, columns: int, job: str) -> None:
    text = OUR_COLORS.sub("", _run_in_terminal(shared_archive, job, columns=columns))

    assert columns == max(_columns(line) for line in text.splitlines())


def test_escape_codes_in_a_name_are_shown_and_not_sent(shared_archive: Path) -> None:
    text = _run_raw(shared_archive, "13").decode()

    assert "\\u001b[31m" in text
    assert {"\n"} == {character for character in text if unicodedata.category(character) in {"Cc", "Cf"}}


def test_terminal_gets_no_escape_codes_but_ours(shared_archive: Path) -> None:
    shown = _run_in_terminal(shared_archive, "13")

    # The name's own colour is plain red; ours are bold red and others.
    assert "\x1b[31m" not in shown
    assert "\x1b" in shown
    assert "\x1b" not in OUR_COLORS.sub("", shown)


@pytest.mark.parametrize(
    ("flags", "environment"),
    [((), {"NO_COLOR": "1"}), ((), {"TERM": "dumb"}), (("--color", "never"), {})],
)
def test_terminal_can_be_without_colours(
    shared_archive: Path, flags: tuple[str, ...], environment: dict[str, str]
) -> None:
    assert "\x1b" not in _run_in_terminal(shared_archive, "12", *flags, environment=environment)


def test_pipe_gets_colours_only_on_demand(shared_archive: Path) -> None:
    plain = _run_raw(shared_archive, "12").decode()
    colored = _run_raw(shared_archive, "12", "--color", "always").decode()

    assert "\x1b" not in plain
    assert plain == OUR_COLORS.sub("", colored) != colored


@pytest.mark.parametrize(
    ("format", "begins", "ends"),
    [("html", b"<!doctype html>", b"</html>"), ("pdf", b"%PDF-", b"%%EOF"), ("seed", b"---", b"WARNING=true")],
)
def test_report_is_written_into_a_file(
    shared_archive: Path, tmp_path: Path, format: str, begins: bytes, ends: bytes
) -> None:
    file = tmp_path / "report"

    done = run_here("report", "12", "--archive.url", str(shared_archive), "--format", format, "--output", str(file))

    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)

    made = file.read_bytes().strip()
    assert made.lower().startswith(begins.lower())
    assert made.endswith(ends)


def test_ending_of_the_file_is_its_format(shared_archive: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"

    run_here("report", "12", "--archive.url", str(shared_archive), "--output", str(file))

    assert 12 == json.loads(file.read_bytes())["summary"]["record"]["job_id"]


def test_task_of_an_array_is_found_by_the_number_users_write(shared_archive: Path) -> None:
    assert "Job 15_3: relax" in run_here("report", "15_3", "--archive.url", str(shared_archive)).stdout


def test_file_that_cannot_be_written_is_named(shared_archive: Path, tmp_path: Path) -> None:
    file = tmp_path / "missing" / "report"

    done = run_here("report", "12", "--archive.url", str(shared_archive), "-o", str(file))

    assert (2, f"slurmscope: cannot write {file}: No such file or directory\n") == (
        done.returncode,
        done.stderr,
    )


def test_id_of_an_array_lists_its_tasks(shared_archive: Path, slurm: Path) -> None:
    flags = ("--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    lines = run_here("report", "15", *flags).stdout.splitlines()

    assert lines[0].startswith("Array 15: ")
    assert lines[0].endswith(", 1 task (1 COMPLETED)")
    assert "15_3" == lines[3].split()[0]
    assert "The report of one task: slurmscope report 15_3" == lines[-1]
    (task,) = json.loads(run_here("report", "15", "--format", "json", *flags).stdout)
    assert "15_3" == task["summary"]["record"]["shown_id"]
    refused = run_here("report", "15", "--format", "html", *flags)
    assert (2, "") == (refused.returncode, refused.stdout)
    assert "name one of its tasks, such as 15_3\n" in refused.stderr


def test_archived_tasks_are_listed_without_accounting(shared_archive: Path, tmp_path: Path) -> None:
    slurm = make_commands(tmp_path / "broken", {"sacct": "echo 'sacct: error: slurmdbd is away' >&2; exit 1"})

    done = run_here("report", "15", "--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    assert (0, "15_3") == (done.returncode, done.stdout.splitlines()[3].split()[0])


def test_unknown_job_is_reported(shared_archive: Path, slurm: Path) -> None:
    flags = ("--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    done = run_here("report", "99_1", *flags)

    assert (2, "") == (done.returncode, done.stdout)
    assert "slurmscope: job 99_1 was not found, or you may not see it; check the job ID\n" == done.stderr


@pytest.mark.parametrize("job", ["12; rm -rf", "abc", "12_", "12.batch", "0", "99999999999", "\x1b[2J"])
def test_invalid_job_id_is_refused(job: str) -> None:
    done = run_here("report", job)

    assert (2, "") == (done.returncode, done.stdout)
    assert done.stderr.endswith(
        " is not a job ID; write 12, 12_3 for an array task, 12+1, 100-120, 12_[1-5], me or last\n"
    )
    assert done.stderr.rstrip("\n").isprintable()


def test_unreachable_accounting_is_reported(shared_archive: Path, tmp_path: Path) -> None:
    slurm = make_commands(tmp_path / "broken", {"sacct": "echo 'sacct: error: slurmdbd is away' >&2; exit 1"})
    flags = ("--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    unknown = run_here("report", "99", *flags)

    assert 2 == unknown.returncode
    assert "slurmdbd is away" in unknown.stderr
    # What is in the archive needs no accounting.
    assert 0 == run_here("report", "12", *flags).returncode


def test_missing_configured_archive_is_reported(slurm: Path, tmp_path: Path) -> None:
    done = run_here("report", "--slurm.bin-path", str(slurm), "--archive.url", str(tmp_path / "typo.db"), "1")

    assert (2, "") == (done.returncode, done.stdout)
    assert (
        "job 1 was not found, or you may not see it; check the job ID; there is no readable archive at" in done.stderr
    )


def test_several_jobs_are_a_table(shared_archive: Path, slurm: Path) -> None:
    flags = ("--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    lines = run_here("report", "12-17", *flags).stdout.splitlines()

    # 15_3 is the task of the array; 16 is its number inside Slurm.
    assert {"12", "13", "14", "15_3", "17"} == {line.split()[0] for line in lines[1:6]}
    assert "5 jobs were found for 6 job IDs." == lines[7]
    assert lines[8].startswith("The report of one job: slurmscope report ")
    week = run_here("report", "12-17", "--since", "7d", "-f", "json", *flags).stdout
    assert {"12", "13", "14", "15_3"} == {job["shown_id"] for job in json.loads(week)["jobs"]}
    assert "12," in run_here("report", "12,13", "-f", "csv", *flags).stdout
    refused = run_here("report", "12,13", "-f", "pdf", "-o", "/dev/null", *flags)
    assert (2, "slurmscope: several jobs are shown as text, json or csv; name one job for pdf\n") == (
        refused.returncode,
        refused.stderr,
    )


def test_own_and_last_jobs_are_found_without_their_ids(tmp_path: Path, slurm: Path) -> None:
    path = tmp_path / "own.db"
    write_archive(path, int(time.time()), user=pwd.getpwuid(os.getuid()).pw_name)
    flags = ("--archive.url", str(path), "--slurm.bin-path", str(slurm))

    own = run_here("report", *flags).stdout
    assert ["12", "13", "15_3", "17"] == sorted(line.split()[0] for line in own.splitlines()[1:5])
    assert own == run_here("report", "me", *flags).stdout
    newest = run_here("report", "me", "--limit", "1", *flags).stdout.splitlines()
    assert "Only the last 1 jobs are shown; see --limit." == newest[3]
    assert f"Job {newest[1].split()[0]}: " in run_here("report", "last", *flags).stdout
    assert run_here("report", "me", "--state", "failed", *flags).stdout.endswith(" that match the filter.\n")


def test_jobs_that_are_not_there_are_reported(shared_archive: Path, slurm: Path) -> None:
    done = run_here("report", "98,99", "--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    assert (2, "", "slurmscope: none of these jobs was found, or you may not see them\n") == (
        done.returncode,
        done.stdout,
        done.stderr,
    )


def test_findings_come_before_facts_and_times_are_local(shared_archive: Path) -> None:
    text = _run_raw(shared_archive, "12", "--full", environment={"TZ": "JST-9"}).decode()

    assert text.index("WARNING: ") < text.index("Use of requested resources") < text.index("Submitted as")
    assert re.search(r"Submitted +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d JST\n", text)


def _serve_portal(connection: socket.socket) -> None:
    request = read_whole_request(connection)
    assert "Bearer slsc_test-token-of-ada" == request.headers["Authorization"]
    answer = PortalClient(make_backend().make_app(), "ada").get(request.line.split()[1])
    head = f"HTTP/1.1 {answer.status_code} X\r\nContent-Length: {len(answer.content)}\r\n\r\n"
    connection.sendall(head.encode() + answer.content)


def test_jobs_of_a_portal_need_no_archive_and_no_slurm(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("slsc_test-token-of-ada")
    token.chmod(0o600)
    with scripted_server(_serve_portal) as url:
        flags = ("--portal.url", url, "--portal.token-file", str(token), "--slurm.bin-path", str(tmp_path))
        one = run_here("report", "4711", *flags)
        last = run_here("report", "last", *flags)
        own = run_here("report", "--limit", "3", *flags)
        tasks = run_here("report", "4800", *flags)
        # 4712 is bob's.
        hidden, absent = (run_here("report", job, *flags) for job in ("4712", "99"))

    assert (0, "") == (one.returncode, one.stderr)
    assert "Job 4711: relax" in one.stdout
    assert f"Charts and more: {url}/jobs/4711" in " ".join(one.stdout.split())
    newest = own.stdout.splitlines()[1].split()[0]
    assert re.search(rf"(Job|Array) {newest.partition('_')[0]}", last.stdout)
    assert "Only the last 3 jobs are shown; see --limit." in own.stdout
    assert tasks.stdout.startswith("Array 4800: ")
    assert "slurmscope: job 4712 was not found, or you may not see it; check the job ID\n" == hidden.stderr
    assert (hidden.returncode, hidden.stderr) == (absent.returncode, absent.stderr.replace("99", "4712"))


def test_stored_script_is_shown_and_checked(shared_archive: Path, tmp_path: Path) -> None:
    heading = f"Batch Script for 12\\n{'-' * 80}\\n"
    sacct = f"case \"$*\" in *--user=ada*--batch-script*) printf '{heading}#!/bin/sh\\nsrun ./a\\n';; esac"
    slurm = make_commands(tmp_path / "scripts", {"sacct": sacct})
    flags = ("--archive.url", str(shared_archive), "--slurm.bin-path", str(slurm))

    text = run_here("report", "12", "--script", *flags).stdout
    assert "  No time limit.\n" in text
    assert "    2  srun ./a\n" in text
    assert (
        "#!/bin/sh\nsrun ./a\n" == json.loads(run_here("report", "12", "--script", "-f", "json", *flags).stdout)["text"]
    )
    for arguments, message in (
        (("14",), "Slurm has not stored the script of job 14, or you may not see it"),
        (("12,13",), "--script shows the script of one job, as text or json"),
        (("12", "-f", "csv"), "--script shows the script of one job, as text or json"),
        (("99_1",), "job 99_1 was not found"),
    ):
        done = run_here("report", *arguments, "--script", *flags)
        assert (2, "", True) == (done.returncode, done.stdout, done.stderr.startswith(f"slurmscope: {message}"))


def test_summary_of_a_job_fits_a_terminal_and_the_whole_report_is_longer(shared_archive: Path) -> None:
    brief, full = (_run_in_terminal(shared_archive, "12", *options) for options in ((), ("--full",)))

    assert len(brief.splitlines()) <= 24 < len(full.splitlines())
    assert "slurmscope report 12 --full" in brief
    assert "Use of requested resources" in full


@pytest.mark.parametrize("chosen", ["last", "12", "12_[1-2]", "me"])
def test_user_without_slurm_is_pointed_to_the_portal(tmp_path: Path, chosen: str) -> None:
    done = run_here("report", chosen, "--slurm.bin-path", str(tmp_path))

    assert 2 == done.returncode
    assert "--portal.url" in done.stderr
    assert "sacct was not found" in done.stderr
