# SPDX-License-Identifier: Apache-2.0
"""What sacctmgr prints of slurmdbd becomes its statistics."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.dbd import ARGUMENTS, ClusterRollup, Dbd, Rollup, RollupTimes, parse_dbd
from slurmscope.cluster.rpc import MessageRpcs, UserRpcs
from slurmscope.core.errors import MalformedAnswer

REAL = (Path(__file__).parents[2] / "fixtures" / "slurm-22.05" / "sacctmgr-stats.txt").read_bytes()
NO_ROLLUPS = re.sub(rb"(?s)Internal DBD.*?(?=Remote Procedure)", b"", REAL)


def once(microseconds: int, timestamp: int) -> RollupTimes:
    """Say what a rollup that ran one time looks like."""
    seconds = microseconds / 1_000_000
    return RollupTimes(runs=1, seconds=seconds, last_seconds=seconds, max_seconds=seconds, last_timestamp=timestamp)


def test_rollups_are_distinguished_by_what_began_them() -> None:
    dbd = parse_dbd(REAL)

    assert 1794732280 == dbd.since
    assert (
        Rollup(origin="internal", times=once(135, 1794732280)),
        Rollup(
            origin="request",
            times=RollupTimes(
                runs=2, seconds=0.519758, last_seconds=0.517915, max_seconds=0.517915, last_timestamp=1794732380
            ),
        ),
    ) == dbd.rollups


def test_rollups_of_a_cluster_are_read_by_period() -> None:
    assert (
        ClusterRollup(cluster="lab", period="hour", times=once(499091, 1794729600)),
        ClusterRollup(cluster="lab", period="day", times=once(15685, 1794700800)),
        ClusterRollup(cluster="lab", period="month", times=once(541, 1793491200)),
    ) == parse_dbd(REAL).cluster_rollups


def test_rollups_of_several_clusters_stay_apart() -> None:
    second = re.search(rb"(?s)Cluster 'lab'.*?\n\n", REAL)
    assert second is not None
    answer = REAL.replace(second[0], second[0] + second[0].replace(b"'lab'", b"'it's far'"))

    assert [(cluster, period) for cluster in ("lab", "it's far") for period in ("hour", "day", "month")] == [
        (each.cluster, each.period) for each in parse_dbd(answer).cluster_rollups
    ]


def test_a_rollup_of_a_new_origin_is_unknown() -> None:
    answer = REAL.replace(b"User RPC rollup call last ran", b"unknown rollup last ran")

    assert ["internal", "unknown"] == [each.origin for each in parse_dbd(answer).rollups]


def test_the_first_rollup_of_a_cluster_has_no_last_time() -> None:
    # What 22.05 prints then.
    first = b"\tLast cycle:   0\n\tMax cycle:    0\n\tTotal time:   541\n\tTotal cycles: 0\n\tMean cycle:   541\n"
    answer = re.sub(rb"\tLast cycle:   541\n(\t.*\n){4}", first, REAL)

    assert (
        RollupTimes(runs=0, seconds=0.000541, last_seconds=None, max_seconds=None, last_timestamp=1793491200)
        == parse_dbd(answer).cluster_rollups[-1].times
    )


def test_a_daemon_that_just_started_has_no_rollups() -> None:
    dbd = parse_dbd(NO_ROLLUPS)

    assert ((), ()) == (dbd.rollups, dbd.cluster_rollups)
    assert 27 == len(dbd.messages)


def test_requests_are_read_by_message_and_by_user() -> None:
    dbd = parse_dbd(REAL)

    assert MessageRpcs(message="DBD_STEP_START", requests=77, seconds=0.069854) == dbd.messages[0]
    assert MessageRpcs(message="DBD_ADD_TRES", requests=1, seconds=0.000625) == dbd.messages[-1]
    assert (
        UserRpcs(user="root", uid=0, requests=408, seconds=1.712503),
        UserRpcs(user="labalice", uid=1001, requests=22, seconds=0.006545),
    ) == dbd.users


def test_the_mean_time_that_slurm_prints_follows_from_ours() -> None:
    printed = re.findall(rb"ave_time:(\d+)", REAL)
    rows: tuple[MessageRpcs | UserRpcs, ...] = (*parse_dbd(REAL).messages, *parse_dbd(REAL).users)

    assert [int(mean) for mean in printed] == [int(round(1e6 * row.seconds) / row.requests) for row in rows]


def test_nothing_can_be_changed_by_our_query() -> None:
    assert "--readonly" in ARGUMENTS


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\n",
        b"You are not running a supported accounting_storage plugin\n",
        REAL[:-1],
        REAL.partition(b"Remote Procedure Call statistics by user")[0],
        REAL.partition(b"Cluster 'lab'")[0],
        REAL.replace(b"Data since", b"Data till"),
        REAL.replace(b"\tTotal time:   15685\n", b""),
        REAL.replace(b"\tTotal cycles: 2\n", b"\tTotal cycles: two\n"),
        REAL.replace(b"total_time:69854", b""),
    ],
)
def test_an_answer_that_was_cut_or_is_another_is_rejected(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="sacctmgr show stats: "):
        parse_dbd(answer)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_rejected(noise: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_dbd(noise)


@given(st.binary(max_size=20), st.data())
def test_noise_inside_an_answer_is_read_or_rejected(noise: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(REAL)))
    end = data.draw(st.integers(begin, min(len(REAL), begin + 20)))
    try:
        dbd = parse_dbd(REAL[:begin] + noise + REAL[end:])
    except MalformedAnswer:
        return
    assert isinstance(dbd, Dbd)
