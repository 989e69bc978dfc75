# SPDX-License-Identifier: Apache-2.0
"""The figures of slurmdbd move as rollups and requests do."""

from __future__ import annotations

import time

from lab import ALICE, SlurmLab
from lab.users import find_user
from tests.e2e.scrape import scrape
from tests.processes import Samples, as_user


def number(served: Samples, name: str, *labels: str) -> float:
    """Return one sample; a series that is not there yet counts nothing."""
    return served[name].get(labels, 0)


def local_time(year: int, month: int, day: int, hour: int = 0) -> int:
    """Return the seconds since 1970 of a moment in the zone that Slurm runs in too."""
    return int(time.mktime((year, month, day, hour, 0, 0, 0, 0, -1)))


def set_level(lab: SlurmLab, level: str) -> None:
    """Set the rights that Alice has in accounting."""
    lab.run("sacctmgr", "-i", "modify", "user", ALICE, "set", f"AdminLevel={level}")


def test_rollups_on_request_are_counted_and_dated(clean_lab: SlurmLab) -> None:
    periods = {
        ("lab", "hour"): local_time(2024, 3, 2, 5),
        ("lab", "day"): local_time(2024, 3, 2),
        ("lab", "month"): local_time(2024, 3, 1),
    }
    before = number(scrape(clean_lab, "dbd"), "slurm_dbd_rollups_total", "request")

    def is_rolled_up() -> bool:
        # slurmdbd's own rollup, at the full hour, may come between; then we look again.
        clean_lab.run("sacctmgr", "-i", "roll", "2024-01-30T00:00:00", "2024-03-02T05:00:00")
        served = scrape(clean_lab, "dbd")
        # Slurm gives no time for the first rollup of a cluster.
        is_timed = periods.keys() == served["slurm_dbd_cluster_rollup_last_seconds"].keys()
        return is_timed and periods == served["slurm_dbd_cluster_rollup_last_timestamp_seconds"]

    clean_lab.wait_for(is_rolled_up, what="the rollup")
    served = scrape(clean_lab, "dbd")

    assert number(served, "slurm_dbd_rollups_total", "request") > before
    for period in ("hour", "day", "month"):
        assert 0 < number(served, "slurm_dbd_cluster_rollup_last_seconds", "lab", period) < 600
        assert number(served, "slurm_dbd_cluster_rollups_total", "lab", period) >= 1


def test_requests_are_counted_by_message_and_user(clean_lab: SlurmLab) -> None:
    uid = clean_lab.run("id", "--user", ALICE).strip()
    before = scrape(clean_lab, "dbd")
    for _ in range(3):
        clean_lab.run("sacctmgr", "show", "stats")
    clean_lab.run("sacctmgr", "show", "qos", user=ALICE)

    after = scrape(clean_lab, "dbd")

    # An answer does not count its own question: ours before and the three since.
    name = "slurm_dbd_rpc_requests_total"
    assert 4 == number(after, name, "DBD_GET_STATS") - number(before, name, "DBD_GET_STATS")
    for name in ("slurm_dbd_rpc_user_requests_total", "slurm_dbd_rpc_user_seconds_total"):
        assert number(after, name, ALICE, uid) > number(before, name, ALICE, uid)
    assert time.time() - 86400 < number(after, "slurm_dbd_statistics_start_timestamp_seconds") <= time.time()


def test_an_operator_may_not_ask_and_an_administrator_may(clean_lab: SlurmLab) -> None:
    account = find_user(ALICE)
    prefix = as_user(account.uid, account.gid)
    try:
        set_level(clean_lab, "Operator")
        refused = scrape(clean_lab, "dbd", prefix=prefix, is_success=False)
        set_level(clean_lab, "Admin")
        served = scrape(clean_lab, "dbd", prefix=prefix)
    finally:
        set_level(clean_lab, "None")

    assert {} == refused["slurm_dbd_rpc_requests_total"]
    assert number(served, "slurm_dbd_rpc_requests_total", "DBD_GET_STATS") > 0


def test_a_dead_database_daemon_is_a_failed_reading(clean_lab: SlurmLab) -> None:
    clean_lab.kill("slurmdbd")
    try:
        served = scrape(clean_lab, "dbd", is_success=False)
    finally:
        clean_lab.start_daemon("slurmdbd")

    assert {("dbd", "refused"): 1} == served["slurmscope_reading_errors_total"]
