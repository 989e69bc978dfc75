# SPDX-License-Identifier: Apache-2.0
"""Times in which nodes were drained are those of sacctmgr."""

from __future__ import annotations

import time
from collections import Counter

from lab import SlurmLab
from tests.processes import run_slurmscope, until, values

REASON = "bad DIMM, slot 3"


def read_page(lab: SlurmLab) -> str:
    """Return the page of an exporter that has this collector only."""
    flags = ("--collector.disable-defaults", "--collector.events", "--slurm.bin-path", str(lab.bin_path))
    return run_slurmscope("cluster", "--once", *flags, environment=lab.environment).stdout


def test_drained_node_has_the_events_of_sacctmgr(clean_lab: SlurmLab) -> None:
    node = clean_lab.nodes[0]

    def show(*columns: str) -> list[list[str]]:
        where = ("where", f"nodes={node}", "start=now-1hour", f"format={','.join(columns)}")
        return [row.split("|") for row in clean_lab.run("sacctmgr", "-n", "-P", "show", "event", *where).splitlines()]

    started = time.time()
    clean_lab.run("scontrol", "update", f"nodename={node}", "state=drain", f"reason={REASON}")
    until(lambda: REASON in {reason for (reason,) in show("Reason")})
    time.sleep(2)
    clean_lab.run("scontrol", "update", f"nodename={node}", "state=resume")
    until(lambda: all(end != "Unknown" for reason, end in show("Reason", "End") if reason == REASON))
    longest = time.time() - started + 1

    page = read_page(clean_lab)

    shown = Counter(reason for reason, _ in show("Reason", "Start"))
    assert shown[REASON] == values(page, "slurm_node_reason_events")[REASON, "drain"]
    assert 2 <= values(page, "slurm_node_reason_lost_seconds")[REASON, "drain"] <= longest
    assert shown[REASON] <= values(page, "slurm_node_events")[node, "drain"]
    assert {("events",): 1} == values(page, "slurmscope_collector_success")
