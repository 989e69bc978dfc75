# SPDX-License-Identifier: Apache-2.0
"""The sums survive a restart, and no file and no disk can stop the counting."""

from __future__ import annotations

import json
import logging
import os
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.completions import RUN_BUCKETS_SECONDS, Completions, RunTimes
from slurmscope.cluster.completions_tracker import (
    SIZE_LIMIT_BYTES,
    CompletionsFile,
    CompletionsState,
    CompletionsTracker,
    FirstReading,
    SteadyReadings,
    decode_state,
    encode_state,
)
from tests.fakes.accounting import START, Accounting
from tests.fakes.small_disk import run_on_small_disk

ROOT = Path(__file__).resolve().parents[3]

NUMBERS = st.integers(0, 2**53)
# Names may hold bytes that are no UTF-8; those travel as lone surrogates.
NAMES = st.text(st.characters(codec=None), max_size=8)
STATE = CompletionsState(completions=Completions(since=START, read_until=START), mark=START)


def sums(*names: st.SearchStrategy[str]) -> st.SearchStrategy[dict[tuple[str, ...], int]]:
    return st.dictionaries(st.tuples(*names), NUMBERS, max_size=4)


RUN_TIMES = st.builds(
    RunTimes,
    counts=st.tuples(*[NUMBERS] * (len(RUN_BUCKETS_SECONDS) + 1)),
    total_seconds=NUMBERS,
)
STATES = st.builds(
    CompletionsState,
    completions=st.builds(
        Completions,
        since=NUMBERS,
        read_until=NUMBERS,
        ended=sums(NAMES, NAMES, NAMES, NAMES),
        run_times=st.dictionaries(NAMES, RUN_TIMES, max_size=3),
        cpu_seconds=sums(NAMES, NAMES),
        gpu_seconds=sums(NAMES, NAMES),
    ),
    mark=NUMBERS,
    seen=st.dictionaries(st.tuples(NUMBERS, NUMBERS), NUMBERS, max_size=5),
    steady=st.none() | st.builds(SteadyReadings, NUMBERS, NUMBERS),
    first=st.none() | st.builds(FirstReading, NUMBERS, NUMBERS),
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "completions.json"


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


class TestContent:
    @given(STATES)
    def test_what_was_saved_comes_back(self, state: CompletionsState) -> None:
        assert state == decode_state(encode_state(state))

    @given(st.binary(max_size=100) | STATES.map(lambda state: encode_state(state)[:-2]))
    def test_other_bytes_are_refused(self, content: bytes) -> None:
        with pytest.raises(ValueError):
            decode_state(content)

    @pytest.mark.parametrize(
        ("key", "value"),
        [
            ("slurmscope-completions", 2),
            ("buckets", [1, 2, 3]),
            ("mark", -1),
            ("mark", True),
            ("mark", 1.5),
            ("mark", 2**70),
            ("mark", None),
            ("since", "yesterday"),
            ("seen", [[1, 2]]),
            ("seen", None),
            ("ended", [["debug", "physics", "COMPLETED", 7, 1]]),
            ("ended", {"debug": 1}),
            ("run_times", [["debug", [1, 2, 3], 6]]),
            ("steady", [1]),
            ("first", "now"),
        ],
    )
    def test_wrong_value_is_refused(self, key: str, value: object) -> None:
        document = {**json.loads(encode_state(STATE)), key: value}

        with pytest.raises(ValueError):
            decode_state(json.dumps(document).encode())

    def test_missing_value_is_refused(self) -> None:
        document = json.loads(encode_state(STATE))
        for key in document:
            with pytest.raises(ValueError):
                decode_state(json.dumps({other: document[other] for other in document if other != key}).encode())

    def test_endless_nesting_is_refused(self) -> None:
        with pytest.raises(ValueError):
            decode_state(b"[" * 100_000)


class TestLoading:
    def test_no_file_is_a_first_start(self, file: Path, caplog: pytest.LogCaptureFixture) -> None:
        assert CompletionsFile(file).load() is None
        assert [] == warnings_of(caplog)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\0" * 500,
            encode_state(STATE)[:-40],
            encode_state(STATE).replace(b'"slurmscope-completions":1', b'"slurmscope-completions":0'),
        ],
    )
    def test_broken_state_is_logged_once_and_replaced(
        self, file: Path, content: bytes, caplog: pytest.LogCaptureFixture
    ) -> None:
        file.write_bytes(content)
        store = CompletionsFile(file)

        assert store.load() is None
        store.save(STATE)

        assert ["cannot read the state file of ended jobs"] == warnings_of(caplog)
        assert STATE == decode_state(file.read_bytes())

    def test_foreign_file_is_logged_once_and_kept(self, file: Path, caplog: pytest.LogCaptureFixture) -> None:
        file.write_bytes(b"ClusterName=precious\n")
        store = CompletionsFile(file)

        assert store.load() is None
        store.save(STATE)

        assert ["cannot read the state file of ended jobs"] == warnings_of(caplog)
        assert b"ClusterName=precious\n" == file.read_bytes()

    def test_pipe_and_folder_do_not_keep_us_waiting(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "folder").mkdir()
        for name in ("pipe", "folder"):
            store = CompletionsFile(tmp_path / name)
            assert store.load() is None
            store.save(STATE)

        assert 2 == len(warnings_of(caplog))
        assert ["folder", "pipe"] == sorted(entry.name for entry in tmp_path.iterdir())
        assert (tmp_path / "pipe").is_fifo()

    def test_huge_file_is_not_taken_in(self, file: Path, caplog: pytest.LogCaptureFixture) -> None:
        file.touch()
        os.truncate(file, SIZE_LIMIT_BYTES + 1)

        assert CompletionsFile(file).load() is None
        assert 1 == len(warnings_of(caplog))

    def test_part_of_a_killed_save_is_removed(self, file: Path) -> None:
        (file.parent / ".completions.json.0123456789abcdef.part").write_bytes(b"{")

        CompletionsFile(file).load()

        assert [] == list(file.parent.iterdir())


class TestSaving:
    def test_missing_directory_is_logged_once_until_it_exists(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        store = CompletionsFile(tmp_path / "later" / "completions.json")
        assert store.load() is None
        store.save(STATE)
        store.save(STATE)
        (tmp_path / "later").mkdir()
        store.save(STATE)

        assert [
            "cannot save the state file of ended jobs, counting continues in memory",
            "state file of ended jobs is saved again",
        ] == [record.getMessage() for record in caplog.records]
        assert STATE == CompletionsFile(tmp_path / "later" / "completions.json").load()

    def test_state_that_could_not_be_loaded_again_is_not_saved(
        self, file: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        store = CompletionsFile(file)
        store.save(STATE)
        name = "x" * (SIZE_LIMIT_BYTES // 4)
        huge = {(name, name, name, name): 1}

        store.save(replace(STATE, completions=replace(STATE.completions, ended=huge)))

        assert ["cannot save the state file of ended jobs, counting continues in memory"] == warnings_of(caplog)
        assert STATE == CompletionsFile(file).load()


def test_restart_goes_on_with_the_sums_and_catches_up(file: Path) -> None:
    accounting = Accounting()
    first_life = CompletionsTracker(wall_clock=accounting.wall_clock, state_file=file)
    accounting.end_job()
    accounting.now += 60
    first_life.update(accounting.run)
    accounting.now += 1800
    accounting.end_job()  # while no tracker was running
    accounting.now += 1800

    second_life = CompletionsTracker(wall_clock=accounting.wall_clock, state_file=file)
    completions = second_life.update(accounting.run)

    assert {("debug", "physics", "COMPLETED", "ok"): 2} == completions.ended
    assert {("debug", "physics"): 40} == completions.cpu_seconds
    assert 20 == completions.run_times["debug"].total_seconds
    assert START == completions.since


COUNT_FOR_EVER = """
import sys
from pathlib import Path
from slurmscope.cluster.completions_tracker import CompletionsTracker
from tests.fakes.accounting import START, Accounting, Record

accounting = Accounting()
accounting.now = int(sys.argv[2])
ends = [START + 60 * number for number in range(1, 3000)]
accounting.records = [Record(job_id=end, end=end, known_at=end) for end in ends]
tracker = CompletionsTracker(wall_clock=accounting.wall_clock, state_file=Path(sys.argv[1]))
print("ready", flush=True)
while True:
    accounting.now += 60
    tracker.update(accounting.run)
"""


def test_kill_at_any_moment_loses_and_doubles_nothing(file: Path) -> None:
    now, lives = START, 0
    while lives < 10:
        argv = [sys.executable, "-c", COUNT_FOR_EVER, str(file), str(now)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            assert b"ready\n" == process.stdout.readline()
            time.sleep(random.uniform(0, 0.08))
            process.kill()
        lives += 1
        if file.exists():
            completions = decode_state(file.read_bytes()).completions
            now = completions.read_until
            assert (now - START) // 60 == sum(completions.ended.values())

    assert START < now


FILL_THE_DISK = """
import json, logging, sys
from pathlib import Path
from slurmscope.cluster.completions_tracker import CompletionsTracker
from slurmscope.cluster.completions_tracker import decode_state
from tests.fakes.accounting import Accounting

messages = []
handler = logging.Handler()
handler.emit = lambda record: messages.append(record.getMessage())
logging.getLogger().addHandler(handler)
logging.getLogger().setLevel(logging.INFO)
folder = Path(sys.argv[1])
accounting = Accounting()
tracker = CompletionsTracker(wall_clock=accounting.wall_clock, state_file=folder / "state")
results = []

def count():
    accounting.end_job()
    accounting.now += 60
    served = sum(tracker.update(accounting.run).ended.values())
    saved = sum(decode_state((folder / "state").read_bytes()).completions.ended.values())
    results.append([served, saved, len(list(folder.iterdir()))])

count()
filler = open(folder / "filler", "wb", buffering=0)
try:
    while True:
        filler.write(b"x" * 512)
except OSError:
    filler.close()
count()
count()
(folder / "filler").unlink()
count()
print(json.dumps([results, messages]))
"""


def test_full_disk_costs_nothing_but_the_file(tmp_path: Path) -> None:
    results, messages = json.loads(run_on_small_disk(tmp_path, 64, FILL_THE_DISK))
    assert [[1, 1, 1], [2, 1, 2], [3, 1, 2], [4, 4, 1]] == results
    assert [
        "cannot save the state file of ended jobs, counting continues in memory",
        "state file of ended jobs is saved again",
    ] == messages
