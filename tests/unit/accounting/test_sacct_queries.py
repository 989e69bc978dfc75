# SPDX-License-Identifier: Apache-2.0
"""Jobs are requested from sacct in few calls, for their own cluster, and in windows that it answers in time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from slurmscope.accounting.records import ENDINGS
from slurmscope.accounting.sacct import SacctAccounting
from slurmscope.core.errors import CommandTimedOut
from tests.fakes.sacct import JOB, FakeSacct

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "slurm-22.05"


class TestQueries:
    def test_columns_that_sacct_does_not_know_are_not_requested(self) -> None:
        helped = (FIXTURES / "sacct-helpformat.txt").read_text(encoding="utf-8")
        sacct = FakeSacct(lambda _: [JOB], help=helped)

        SacctAccounting(sacct.run).read_jobs([12])

        fields = set(sacct.calls[0]["format"].split(","))
        assert fields <= set(helped.split())
        assert {"SubmitLine", "Suspended"} <= fields
        assert "Restarts" not in fields

    def test_many_jobs_are_requested_in_few_calls(self) -> None:
        sacct = FakeSacct(lambda options: [{**JOB, "JobIDRaw": number} for number in options["jobs"].split(",")])

        records = SacctAccounting(sacct.run).read_jobs([*range(1, 1201), 5, 0, -1, 2**32])

        assert list(range(1, 1201)) == [record.job_id for record in records]
        assert 3 == len(sacct.calls)

    def test_no_job_is_no_query(self) -> None:
        sacct = FakeSacct(lambda _: [JOB])

        assert () == SacctAccounting(sacct.run).read_jobs([])
        assert [] == sacct.calls

    def test_cluster_of_this_host_is_read_unless_others_are_named(self) -> None:
        calls: list[Sequence[str]] = []

        def run(command: str, arguments: Sequence[str]) -> bytes:
            calls.append(arguments)
            return b"alpha\nbeta\n" if command == "sacctmgr" else b""

        SacctAccounting(run).of("alpha").read_jobs([1])
        named = SacctAccounting(run, clusters=["alpha", "beta"])
        named.read_jobs([1])
        named.of("beta").read_jobs([1])
        every = SacctAccounting(run, clusters=["all"])
        every.read_jobs([1])

        # The columns of each are queried once.
        choices = [
            [word for word in call if word.startswith(("--local", "--clusters", "--allclusters"))]
            for call in calls[1::2]
        ]
        assert [["--local"], ["--clusters=alpha,beta"], ["--clusters=beta"], ["--allclusters"]] == choices
        assert (("alpha", "beta"), ("beta",), ("alpha", "beta")) == (
            named.clusters(), named.of("beta").clusters(), every.clusters(),
        )  # fmt: skip

    def test_equal_jobs_of_two_clusters_are_two_records(self) -> None:
        sacct = FakeSacct(lambda _: [JOB, {**JOB, "Cluster": "beta"}])

        records = SacctAccounting(sacct.run, clusters=["lab", "beta"]).read_jobs([12])

        assert {"beta", JOB["Cluster"]} == {record.cluster for record in records}

    def test_windows_cover_the_time_once(self) -> None:
        sacct = FakeSacct(lambda _: [])

        assert [] == list(SacctAccounting(sacct.run).read_ended(1_794_000_000, 1_794_900_000))

        windows = [(_uts(call["starttime"]), _uts(call["endtime"])) for call in sacct.calls]
        assert (1_794_000_000, 1_794_900_000) == (windows[0][0], windows[-1][1])
        assert [end + 1 for _, end in windows[:-1]] == [start for start, _ in windows[1:]]
        assert max(end - start for start, end in windows) < 86_400
        assert {",".join(sorted(ENDINGS))} == {call["state"] for call in sacct.calls}

    def test_windows_shrink_where_much_happens(self) -> None:
        many = [JOB] * 20_001
        sacct = FakeSacct(lambda options: many if _uts(options["starttime"]) == 1_794_000_000 else [])

        list(SacctAccounting(sacct.run).read_ended(1_794_000_000, 1_794_010_000))

        lengths = [_uts(call["endtime"]) - _uts(call["starttime"]) + 1 for call in sacct.calls]
        assert [3600, 1800, 3600] == lengths[:3]

    def test_slow_window_is_read_in_smaller_ones(self) -> None:
        def answer(options: dict[str, str]) -> list[dict[str, str]]:
            start, end = _uts(options["starttime"]), _uts(options["endtime"])
            if end - start > 600:
                raise CommandTimedOut(["sacct"], "killed")
            return [{**JOB, "End": str(end)}]

        ends = [record.end_seconds for record in SacctAccounting(FakeSacct(answer).run).read_ended(10**9, 10**9 + 3599)]

        assert 10**9 + 3599 == ends[-1]
        assert sorted(set(ends), key=int) == ends  # type: ignore[arg-type]

    def test_accounting_that_is_always_slow_is_abandoned(self) -> None:
        def answer(_options: dict[str, str]) -> list[dict[str, str]]:
            raise CommandTimedOut(["sacct"], "killed")

        sacct = FakeSacct(answer)

        with pytest.raises(CommandTimedOut):
            list(SacctAccounting(sacct.run).read_ended(10**9, 10**9 + 3599))
        assert len(sacct.calls) < 6

    def test_jobs_that_just_ended_are_not_current(self) -> None:
        running = {**JOB, "JobIDRaw": "13", "State": "RUNNING", "End": "Unknown"}
        sacct = FakeSacct(lambda _: [JOB, running])

        assert [13] == [record.job_id for record in SacctAccounting(sacct.run).read_current()]
        assert "now" == sacct.calls[0]["starttime"]

    def test_jobs_of_one_user_are_not_requested_for_all(self) -> None:
        sacct = FakeSacct(lambda _: [JOB])

        assert [12] == [record.job_id for record in SacctAccounting(sacct.run).read_user("ada", 100, 200)]
        (call,) = sacct.calls
        assert ("ada", "uts100", "uts200") == (call["user"], call["starttime"], call["endtime"])
        assert "allusers" not in call


def _uts(text: str) -> int:
    return int(text.removeprefix("uts"))
