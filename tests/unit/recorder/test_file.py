# SPDX-License-Identifier: Apache-2.0
"""No crash, no disk and no stranger's file costs more than it must."""

from __future__ import annotations

import logging
import math
import os
import signal
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from slurmscope.core.errors import ArchiveError, SourceError
from slurmscope.jobs.series import Aggregation, JobSpan, SeriesQuery
from slurmscope.recorder.recorder import Recorder
from slurmscope.recorder.series import RecorderSeries
from slurmscope.recorder.settings import RecorderSettings
from tests.fakes.recorded_samples import CPU, INTERVAL, JOB, START, make_recorder, sample

ROOT = Path(__file__).resolve().parents[3]


def highest(recorder: Recorder, start: float = START) -> float | None:
    series = recorder.series()
    wanted = SeriesQuery(metric=CPU, how=Aggregation.MAX)
    found = series.read_totals(wanted, [JobSpan(JOB, start, START + 10 * 86400)], until=math.inf).by_job
    return found[JOB][("n1",)] if found else None


def highest_in_file(folder: Path) -> float:
    """Read as another process does, without the recorder's memory."""
    series = RecorderSeries(folder / "recorder.db", interval_seconds=INTERVAL)
    spans = [JobSpan(JOB, START, START + 10 * 86400)]
    return series.read_totals(SeriesQuery(metric=CPU, how=Aggregation.MAX), spans, until=math.inf).by_job[JOB][("n1",)]


def run_python(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    begin = "import os, resource, signal, sqlite3, sys\nfrom pathlib import Path\n"
    begin += "from tests.fakes.recorded_samples import START, make_recorder, sample\n"
    argv = [sys.executable, "-c", begin + script, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_killed_process_loses_nothing_that_was_taken(tmp_path: Path) -> None:
    script = (
        "recorder = make_recorder(Path(sys.argv[1]))\n"
        "for turn in range(200): recorder.record(START + 15 * turn, [sample(float(turn))])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert -signal.SIGKILL == run_python(script, str(tmp_path)).returncode
    with make_recorder(tmp_path) as recorder:
        spans = [JobSpan(JOB, START, START + 86400)]
        mean = recorder.series().read_totals(SeriesQuery(metric=CPU, how=Aggregation.MEAN), spans, until=math.inf)
        assert {("n1",): 199 / 2} == mean.by_job[JOB]
        recorder.record(START + 15 * 200, [sample(200.0)])
        assert 200.0 == highest(recorder)


def test_restart_takes_up_the_same_series(tmp_path: Path) -> None:
    for turn in range(3):
        with make_recorder(tmp_path) as recorder:
            recorder.record(START + 15 * turn, [sample(15.0 * turn)])
    with make_recorder(tmp_path) as recorder:
        wanted = SeriesQuery(metric=CPU, how=Aggregation.RATE)
        found = recorder.series().read_totals(wanted, [JobSpan(JOB, START, START + 60)], until=math.inf)
    assert {("n1",): 1.0} == found.by_job[JOB]


def test_settled_samples_are_in_the_file_itself(tmp_path: Path) -> None:
    """What is in the main file was synced before; only that survives a loss of power for certain."""
    seconds = iter([0.0, *[1.0] * 8, *[100.0] * 100])
    with Recorder(RecorderSettings(file=tmp_path / "recorder.db"), clock=lambda: next(seconds)) as recorder:
        recorder.record(START, [sample(1.0)])
        assert 0 == _moments_in_main_file(tmp_path)
        recorder.settle()
        assert 1 == _moments_in_main_file(tmp_path)
        for turn in range(1, 20):
            recorder.record(START + turn, [sample(1.0)])
        assert 1 < _moments_in_main_file(tmp_path)


def _moments_in_main_file(folder: Path) -> int:
    copy = folder / "copy.db"
    copy.write_bytes((folder / "recorder.db").read_bytes())
    connection = sqlite3.connect(copy)
    try:
        return int(connection.execute("SELECT count(*) FROM journal").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # not even the tables are there
    finally:
        connection.close()
        for file in folder.glob("copy.db*"):
            file.unlink()


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir() if "lock" not in file.name}
    assert {0o600} == modes


def test_second_recorder_is_rejected(tmp_path: Path) -> None:
    with make_recorder(tmp_path), pytest.raises(ArchiveError, match="another process records into"):
        make_recorder(tmp_path)
    make_recorder(tmp_path).close()


def test_missing_folder_is_one_clear_sentence(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="No such file or directory"):
        make_recorder(tmp_path / "absent")


def test_foreign_files_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "recorder.db"
    file.write_text("root:x:0:0\n")
    with pytest.raises(ArchiveError, match="is not a file of the recorder"):
        make_recorder(tmp_path)
    assert "root:x:0:0\n" == file.read_text()
    file.unlink()
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE precious (id INTEGER)")
    connection.close()
    before = file.read_bytes()
    with pytest.raises(ArchiveError, match="is not a file of the recorder"):
        make_recorder(tmp_path)
    assert before == file.read_bytes()


def test_pipe_in_place_of_the_file_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "recorder.db")
    with pytest.raises(ArchiveError, match="is not a file of the recorder"):
        make_recorder(tmp_path)


@pytest.mark.parametrize("content", [b"", bytes(5000)])
def test_what_a_loss_of_power_leaves_of_a_new_file_is_used(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "recorder.db").write_bytes(content)
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        assert 1.0 == highest(recorder)


def test_file_of_a_later_version_is_skipped(tmp_path: Path) -> None:
    make_recorder(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "recorder.db")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(ArchiveError, match="another version of slurmscope"):
        make_recorder(tmp_path)
    series = RecorderSeries(tmp_path / "recorder.db", interval_seconds=INTERVAL)
    with pytest.raises(SourceError, match="another version of slurmscope"):
        series.read_totals(
            SeriesQuery(metric=CPU, how=Aggregation.MAX), [JobSpan(JOB, START, START + 60)], until=math.inf
        )


def test_damaged_file_is_moved_aside_and_recording_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "recorder.db"
    for number in (1, 2):
        with make_recorder(tmp_path) as recorder:
            recorder.record(START, [sample(1.0)])
        content = file.read_bytes()
        damaged = content[:100] + b"\xff" * (len(content) - 100)
        file.write_bytes(damaged)
        with caplog.at_level(logging.WARNING), make_recorder(tmp_path) as recorder:
            assert highest(recorder) is None
            recorder.record(START, [sample(2.0)])
            assert 2.0 == highest(recorder)
        assert damaged == (tmp_path / f"recorder.db.damaged-{number}").read_bytes()
        assert number == caplog.text.count("the recorder file is damaged")


def test_damaged_journal_is_moved_aside(tmp_path: Path) -> None:
    script = (
        "recorder = make_recorder(Path(sys.argv[1]))\n"
        "recorder.record(START, [sample(1.0)])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run_python(script, str(tmp_path))
    _change(tmp_path, "UPDATE journal SET series = x'0102'")
    with make_recorder(tmp_path) as recorder:
        assert highest(recorder) is None
    assert (tmp_path / "recorder.db.damaged-1").exists()


def test_file_damaged_while_it_is_used_costs_only_what_was_packed(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        recorder.record(START + 3600, [sample(2.0)])  # the first one is packed now
        # A page of SQLite is replaced behind the recorder's back, as a failing disk does it.
        connection = sqlite3.connect(tmp_path / "recorder.db")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET rootpage = 100000 WHERE name = 'journal'")
        connection.execute("PRAGMA schema_version = 77")
        connection.commit()
        connection.close()
        recorder.record(START + 3615, [sample(3.0)])
        assert 3.0 == highest(recorder)
        assert 3.0 == highest_in_file(tmp_path)  # so it would be there after a crash
        assert (
            2
            == recorder.series()
            .read_totals(
                SeriesQuery(metric=CPU, how=Aggregation.MEAN), [JobSpan(JOB, START, START + 3610)], until=math.inf
            )
            .by_job[JOB][("n1",)]
        )
    with make_recorder(tmp_path) as recorder:
        assert 3.0 == highest(recorder)
    assert (tmp_path / "recorder.db.damaged-1").exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE slabs SET data = x'00'",
        "UPDATE slabs SET data = substr(data, 1, length(data) - 3)",
        "UPDATE slabs SET labels = x'789c030000000001'",
        "UPDATE slabs SET layout = x'01'",
        "UPDATE slabs SET digests = x''",
        "DELETE FROM times",
    ],
)
def test_damaged_block_is_a_source_error(tmp_path: Path, change: str) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0)])
        recorder.record(START + 15, [sample(2.0)])
    _change(tmp_path, change)
    series = RecorderSeries(tmp_path / "recorder.db", interval_seconds=INTERVAL)
    with pytest.raises(SourceError, match=r"cannot read recorded samples from .*recorder\.db"):
        series.read_curves(
            SeriesQuery(metric=CPU, how=Aggregation.RATE), [JobSpan(JOB, START, START + 60)], points=10, until=math.inf
        )


def _change(folder: Path, statement: str) -> None:
    connection = sqlite3.connect(folder / "recorder.db")
    connection.execute(statement)
    connection.commit()
    connection.close()


def test_full_disk_is_one_clear_sentence_and_recovers(tmp_path: Path) -> None:
    script = (
        "recorder = make_recorder(Path(sys.argv[1]))\n"
        "recorder.record(START, [sample(1.0)])\n"
        "recorder.settle()\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))\n"
        "from slurmscope.core.errors import ArchiveError\n"
        "for turn in range(1, 4):\n"
        "    try: recorder.record(START + turn, [sample(2.0), sample(2.0, job=1)])\n"
        "    except ArchiveError as error: print(error)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))\n"
        "recorder.record(START + 3600, [sample(3.0)])\n"
        "heads = sqlite3.connect(Path(sys.argv[1]) / 'recorder.db').execute('SELECT job_id FROM heads')\n"
        "print(recorder.recorded, heads.fetchall())\n"
        "recorder.close()\n"
    )
    answer = run_python(script, str(tmp_path))
    *sentences, counts = answer.stdout.splitlines()
    # The series of which no sample could be taken is not in the file either.
    assert ("2 [(4711,)]", "") == (counts, answer.stderr)
    assert 3 == len(sentences)
    assert all(line.startswith(f"cannot write samples to {tmp_path}/recorder.db: ") for line in sentences)
    with make_recorder(tmp_path) as recorder:
        assert 3.0 == highest(recorder)


def test_samples_older_than_the_retention_are_dropped(tmp_path: Path) -> None:
    with make_recorder(tmp_path, retention=86400.0) as recorder:
        for hour in range(60):
            recorder.record(START + 3600 * hour, [sample(1000.0 - hour)])
        # The period before the last one ended at hour 58; a day before that is hour 34.
        assert 1000 - 34 == highest(recorder)
    connection = sqlite3.connect(tmp_path / "recorder.db")
    counts = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("slabs", "times")]
    connection.close()
    assert [26, 26] == counts


def test_clock_that_jumps_ahead_deletes_a_day_an_hour(tmp_path: Path) -> None:
    with make_recorder(tmp_path, retention=14 * 86400.0) as recorder:
        for hour in range(14 * 24):
            recorder.record(START + 3600 * hour, [sample(1.0)])
        for hour in range(3):
            recorder.record(START + 400 * 86400 + 3600 * hour, [sample(1.0)])
    connection = sqlite3.connect(tmp_path / "recorder.db")
    oldest = connection.execute("SELECT min(period) FROM slabs").fetchone()[0]
    connection.close()
    # Each of these hours made everything a year old.
    assert START + 86400 <= oldest <= START + 3 * 86400


def test_samples_of_a_wrong_clock_are_dropped(tmp_path: Path) -> None:
    future = START + 9 * 86400
    with make_recorder(tmp_path) as recorder:
        recorder.record(future, [sample(999.0)])
        for hour in range(3):
            recorder.record(START + 3600 * hour, [sample(1.0)])
        assert 1.0 == highest(recorder)


def test_file_stays_within_its_size(tmp_path: Path) -> None:
    limit = 400_000
    nodes = [f"n{number}" for number in range(2, 200)]
    with make_recorder(tmp_path, max_size=limit) as recorder:
        for turn in range(400):
            recorder.record(
                START + 1800 * turn, [sample(hash((turn, node)) / 7, node=node) for node in nodes] + [sample(turn)]
            )
        assert 399.0 == highest(recorder, START + 1800 * 399)
        found = recorder.series().read_totals(
            SeriesQuery(metric=CPU, how=Aggregation.MAX), [JobSpan(JOB, START, START + 1800 * 100)], until=math.inf
        )
        assert {} == found.by_job
    # One period comes on top, and what SQLite keeps free.
    assert (tmp_path / "recorder.db").stat().st_size < 2 * limit


def test_series_that_got_no_sample_for_a_period_is_let_go(tmp_path: Path) -> None:
    with make_recorder(tmp_path) as recorder:
        recorder.record(START, [sample(1.0), sample(1.0, job=JOB + 1)])
        for turn in range(1, 5):
            recorder.record(START + 3600 * turn, [sample(1.0 + turn)])
        recorder.settle()
        connection = sqlite3.connect(tmp_path / "recorder.db")
        jobs = connection.execute("SELECT job_id FROM heads").fetchall()
        connection.close()
        assert [(JOB,)] == jobs
        recorder.record(START + 18100, [sample(9.0, job=JOB + 1)])  # it comes back
        found = recorder.series().read_totals(
            SeriesQuery(metric=CPU, how=Aggregation.MEAN), [JobSpan(JOB + 1, START, START + 19999)], until=math.inf
        )
        assert {("n1",): 5.0} == found.by_job[JOB + 1]


def test_folder_that_is_not_there_is_reported_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match=r"No such file or directory; create its folder .* --recorder\.file$"):
        Recorder(RecorderSettings(file=tmp_path / "none" / "recorder.db"))
