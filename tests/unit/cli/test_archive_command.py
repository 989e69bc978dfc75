# SPDX-License-Identifier: Apache-2.0
"""``slurmscope archive`` saves what the portal and ``up`` cannot make again."""

from __future__ import annotations

import json
import os
import pty
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from slurmscope.archive.settings import ArchiveSettings
from slurmscope.archive.sql_archive import SqlArchive
from slurmscope.jobs.viewer import EVERYTHING
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.reports.sources import open_archive, open_known_archive
from tests.fakes.reports import make_record, make_report
from tests.processes import PATIENCE_SECONDS, run_slurmscope


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[SqlArchive]:
    """Open an archive with one job, as the portal does."""
    with closing(open_archive(ArchiveSettings(url=f"sqlite:///{tmp_path}/archive.db"))) as archive:
        archive.save([make_report(make_record(7))])
        yield archive


def back_up(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    flags = ("--archive.url", f"{folder}/archive.db", "--recorder.file", f"{folder}/recorder.db")
    return run_slurmscope("archive", "backup", *arguments, *flags)


def jobs_in(path: Path) -> list[int]:
    archive = open_known_archive(ArchiveSettings(url=f"sqlite:///{path}"))
    assert archive is not None
    with closing(archive):
        return [report.record.job_id for report in archive.find(EVERYTHING, 7)]


@pytest.mark.usefixtures("archive")
def test_copy_of_an_open_archive_has_its_jobs(tmp_path: Path) -> None:
    done = back_up(tmp_path, f"{tmp_path}/copy.db")

    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith(f"{tmp_path}/copy.db: ")
    assert [7] == jobs_in(tmp_path / "copy.db")


@pytest.mark.usefixtures("archive")
def test_samples_of_up_are_copied_while_they_are_recorded(tmp_path: Path) -> None:
    target = tmp_path / "samples.db"
    with Recorder(RecorderSettings(file=tmp_path / "recorder.db")):
        done = back_up(tmp_path, f"{tmp_path}/copy.db", "--recorder", str(target))

    assert (0, 2) == (done.returncode, len(done.stdout.splitlines()))
    with closing(sqlite3.connect(target)) as connection:
        assert [("ok",)] == connection.execute("PRAGMA integrity_check").fetchall()
        assert (0,) == connection.execute("SELECT count(*) FROM slabs").fetchone()


@pytest.mark.usefixtures("archive")
def test_nothing_is_copied_if_a_part_is_not_there(tmp_path: Path) -> None:
    done = back_up(tmp_path, f"{tmp_path}/copy.db", "--recorder", f"{tmp_path}/samples.db")

    assert 2 == done.returncode
    assert f"there are no readable samples at {tmp_path}/recorder.db" in done.stderr
    assert not (tmp_path / "copy.db").exists()


def test_absent_archive_and_existing_file_are_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_text("precious")
    absent = back_up(tmp_path, f"{tmp_path}/other.db")
    (tmp_path / "archive.db").touch()
    existing = back_up(tmp_path, f"{tmp_path}/copy.db")

    assert (2, 1) == (absent.returncode, len(absent.stderr.splitlines()))
    assert "there is no readable archive" in absent.stderr
    assert (2, f"slurmscope: {tmp_path}/copy.db exists; choose another file, or replace it with --force\n") == (
        existing.returncode,
        existing.stderr,
    )


@pytest.mark.parametrize(
    ("url", "program"),
    [
        ("postgresql://u@db.example.org/jobs", "pg_dump --format=custom --file=FILE jobs"),
        ("mariadb://u@db.example.org/jobs", "mariadb-dump --single-transaction --result-file=FILE jobs"),
    ],
)
def test_database_servers_have_their_own_programs(tmp_path: Path, url: str, program: str) -> None:
    done = run_slurmscope("archive", "backup", f"{tmp_path}/copy.db", "--archive.url", url)

    assert 2 == done.returncode
    assert program in done.stderr


def start_slowly(folder: Path, name: str = "copy.db") -> subprocess.Popen[bytes]:
    """Start a backup that waits in the middle."""
    program = (
        "import sys, time\n"
        "from slurmscope.core import sqlite_backup as backup\n"
        "backup.STEP_PAGES = 1\n"
        "from slurmscope.cli import archive_command, main\n"
        "def wait(done, total):\n"
        "    print('copying', flush=True)\n"
        "    time.sleep(600)\n"
        "archive_command._progress = lambda: wait\n"
        "main(sys.argv[1:])\n"
    )
    argv = [sys.executable, "-c", program, "archive", "backup", f"{folder}/copies/{name}"]
    (folder / "copies").mkdir(exist_ok=True)
    process = subprocess.Popen([*argv, "--archive.url", f"{folder}/archive.db"], stdout=subprocess.PIPE)
    assert process.stdout
    with process.stdout as output:
        assert b"copying\n" == output.readline()
    return process


@pytest.mark.usefixtures("archive")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_backup_that_is_ended_in_the_middle_leaves_nothing(tmp_path: Path, number: int) -> None:
    process = start_slowly(tmp_path)
    process.send_signal(number)

    assert 0 != process.wait(PATIENCE_SECONDS)
    assert [] == list((tmp_path / "copies").iterdir())


@pytest.mark.usefixtures("archive")
def test_backup_that_is_killed_in_the_middle_leaves_no_file_of_that_name(tmp_path: Path) -> None:
    process = start_slowly(tmp_path)
    process.kill()
    process.wait(PATIENCE_SECONDS)

    copies = tmp_path / "copies"
    assert [".partial"] == [path.suffix for path in copies.iterdir()]
    # The next one deletes what is left, but not what another process writes.
    other = start_slowly(tmp_path, "second.db")
    assert 0 == back_up(tmp_path, f"{copies}/copy.db").returncode
    assert 0 == back_up(tmp_path, f"{copies}/second.db").returncode
    names = sorted(path.name for path in copies.iterdir())
    assert ["copy.db", "second.db"] == names[1:]
    assert names[0].startswith(".second.db.")
    other.terminate()
    other.wait(PATIENCE_SECONDS)
    assert [7] == jobs_in(copies / "copy.db")


@pytest.mark.usefixtures("archive")
def test_terminal_shows_the_progress(tmp_path: Path) -> None:
    reader, writer = pty.openpty()
    argv = [sys.executable, "-m", "slurmscope", "archive", "backup", f"{tmp_path}/copy.db"]
    subprocess.run(
        [*argv, "--archive.url", f"{tmp_path}/archive.db"], stderr=writer, timeout=PATIENCE_SECONDS, check=True
    )
    os.close(writer)

    assert os.read(reader, 1000).startswith(b"\r")
    os.close(reader)


def test_file_alone_is_complete_when_the_archive_is_idle(tmp_path: Path, archive: SqlArchive) -> None:
    archive.flush()

    shutil.copy(tmp_path / "archive.db", tmp_path / "alone.db")

    assert [7] == jobs_in(tmp_path / "alone.db")


def test_flush_waits_for_nobody(tmp_path: Path, archive: SqlArchive) -> None:
    with closing(sqlite3.connect(tmp_path / "archive.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        started = time.monotonic()
        archive.flush()
        # Waiting for the other writer would take the whole timeout of ten seconds.
        assert time.monotonic() - started < ArchiveSettings().timeout


@pytest.mark.usefixtures("archive")
def test_user_is_forgotten_only_when_it_was_confirmed(tmp_path: Path) -> None:
    def forget(user: str, *flags: str) -> tuple[int, str]:
        done = run_slurmscope("archive", "forget", user, *flags, "--archive.url", f"{tmp_path}/archive.db")
        return done.returncode, done.stdout + done.stderr

    owner = make_record(7).user

    assert (0, f"{owner}: 1 ended jobs. Nothing was deleted: repeat with --yes.\n") == forget(owner)
    assert [7] == jobs_in(tmp_path / "archive.db")
    assert (0, f"{owner}: deleted: 1 ended jobs\n") == forget(owner, "--yes")
    assert [] == jobs_in(tmp_path / "archive.db")
    assert (0, f"{owner}: nothing to delete\n") == forget(owner, "--yes")
    assert (0, "no\\u001b[1mone: nothing to delete\n") == forget("no\x1b[1mone")


@pytest.mark.usefixtures("archive")
def test_size_is_that_of_the_files_and_their_disk(tmp_path: Path) -> None:
    done = run_slurmscope("archive", "size", "--json", "--archive.url", f"{tmp_path}/archive.db")
    result = json.loads(done.stdout)

    on_disk = sum(file.stat().st_size for file in tmp_path.glob("archive.db*"))
    # The log may grow while the archive is read.
    assert on_disk / 2 <= result["used_bytes"] <= 2 * on_disk
    assert abs(result["free_bytes"] - shutil.disk_usage(tmp_path).free) < 1024**3
    assert (1, result["used_bytes"]) == (result["jobs"], result["bytes_per_job"])


@pytest.mark.usefixtures("archive")
def test_size_is_explained_in_words(tmp_path: Path) -> None:
    shown = run_slurmscope("archive", "size", "--archive.url", f"{tmp_path}/archive.db").stdout.splitlines()

    assert ["archive:", "growth:", "disk:"] == [line.split()[0] for line in shown]
    assert ", 1 ended jobs, " in shown[0]


def test_archive_that_is_not_there_has_no_size(tmp_path: Path) -> None:
    done = run_slurmscope("archive", "size", "--archive.url", f"{tmp_path}/archive.db")

    assert (2, "") == (done.returncode, done.stdout)
    assert not list(tmp_path.iterdir())


def export(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_slurmscope("archive", "export", *arguments, "--archive.url", f"{folder}/archive.db")


@pytest.mark.usefixtures("archive")
def test_jobs_of_a_period_are_exported_for_xdmod(tmp_path: Path) -> None:
    # The job ended on 2026-09-21 at 16:13:20 UTC.
    found = export(tmp_path, "--since", "2026-09-21T16:13:20", "--until", "2026-09-22")
    after = export(tmp_path, "--until", "2026-09-21T16:13:20")

    assert (0, "") == (found.returncode, found.stderr)
    assert ["7", "7", "lab", "batch"] == found.stdout.split("|")[:4]
    assert 1 == len(found.stdout.splitlines())
    assert (0, "") == (after.returncode, after.stdout)


def test_export_is_of_one_cluster(archive: SqlArchive, tmp_path: Path) -> None:
    archive.save([make_report(make_record(8, cluster="other"))])
    several, unknown, other = (
        export(tmp_path),
        export(tmp_path, "--cluster", "none"),
        export(tmp_path, "--cluster", "other"),
    )

    assert (2, 2, 0) == (several.returncode, unknown.returncode, other.returncode)
    assert "choose one with --cluster: lab, other" in several.stderr
    assert "no jobs of cluster none" in unknown.stderr
    assert "8" == other.stdout.split("|")[0]
