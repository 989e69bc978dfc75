# SPDX-License-Identifier: Apache-2.0
"""What a real MPI job waits for is named, a stopped task or a slow node; healthy jobs show nothing."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from statistics import fmean
from typing import Any

from lab import ALICE, BOB, SlurmLab
from lab.prometheus import run_prometheus
from tests.e2e.detector_trial import limited, start_mpi
from tests.processes import run_slurmscope, serving, until, values


def test_stopped_task_of_an_mpi_job_is_named(slurm_lab: SlurmLab) -> None:
    lab = slurm_lab
    lab.reset()
    stuck, ranks = start_mpi(lab, ALICE, "stuck")
    healthy, _ = start_mpi(lab, BOB, "healthy")
    pid, node = ranks["3"]
    assert 2 == len({node for _, node in ranks.values()})
    with serving("node") as agent:
        until(lambda: agent.get()[0] == 200, 120)
        os.kill(pid, signal.SIGSTOP)
        stopped_at = time.monotonic()

        def held() -> dict[tuple[str, ...], float]:
            time.sleep(2)
            found = values(agent.get()[1], "jobs_held_process_seconds")
            return {labels: seconds for labels, seconds in found.items() if labels[0] in (str(stuck), str(healthy))}

        until(held, 180)
        took = time.monotonic() - stopped_at
        [(labels, seconds)] = held().items()
        page = agent.get()[1]

    assert (str(stuck), node, str(pid), "3", "stopped") == (*labels[:3], *labels[4:])
    assert 60 <= seconds <= took + 10
    counts = values(page, "jobs_held_processes")
    assert 1 == counts[str(stuck), node]
    assert {0.0} == {count for (job, _), count in counts.items() if job == str(healthy)}
    lab.run("scancel", str(stuck), str(healthy))


CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: nodes
    static_configs: [{{targets: ["{address}"]}}]
"""
QUOTA_RATIO = 0.03


def test_node_that_slows_the_others_is_named_with_its_factor(slurm_lab: SlurmLab, tmp_path: Path) -> None:
    lab = slurm_lab
    lab.reset()
    slow, ranks = start_mpi(lab, ALICE, "slow", tasks=2, work_seconds=0.005)
    healthy, _ = start_mpi(lab, BOB, "even", tasks=2, work_seconds=0.005)
    _, node = ranks["1"]
    assert 2 == len({node for _, node in ranks.values()})
    environment = {**lab.environment, "SLURMSCOPE_RULES_STRAGGLER_MIN_SLOW_SECONDS": "15s"}
    with (
        serving("node") as agent,
        run_prometheus(tmp_path / "prometheus", CONFIG.format(address=agent.addresses[0])) as prometheus,
        limited(ranks, "1", QUOTA_RATIO),
    ):

        def find(job: int) -> list[dict[str, Any]]:
            url = ("--prometheus.url", prometheus.url, "--prometheus.scrape-interval", "1s")
            done = run_slurmscope("report", str(job), "--format", "json", *url, environment=environment)
            assert 0 == done.returncode, done.stderr
            found = json.loads(done.stdout)["findings"]
            return [finding for finding in found if finding["rule"] == "straggler"]

        until(lambda: find(slow), 180)
        [finding] = find(slow)
        assert [] == find(healthy)

    assert f"Processes on {node} had a core" in finding["explanation"]
    # What the task itself saw of its pieces of work.
    pieces = (lab.folder / "work" / "slow" / "1.work").read_text(encoding="ascii").split()
    took = fmean(float(piece) for piece in pieces[len(pieces) // 2 :]) / 0.005
    assert took / 3 < finding["numbers"]["factor"] < 3 * took
    lab.run("scancel", str(slow), str(healthy))
