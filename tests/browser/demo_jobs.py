# SPDX-License-Identifier: Apache-2.0
"""Find jobs of every kind with the API of the demo."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import islice
from typing import Any

import httpx

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJobs:
    """Hold the id of one job of each kind."""

    wasteful: str
    other_wasteful: str
    running: str
    gpu: str
    array: str
    user: str
    account: str
    node: str
    pending: str


def find_jobs(base: str) -> DemoJobs:
    """Choose jobs; wait until the demo has archived some of each kind."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        jobs = list_jobs(base, "limit=500")
        ended = [job for job in list_jobs(base, "worst=critical&limit=100") if job["end_seconds"] is not None]
        running = [job for job in jobs if job["state"] == "RUNNING" and job["run_seconds"] > 600]
        gpu = [job for job in jobs if job["gpus"] and job["gpu_ratio"] is not None]
        started = [job for job in jobs if job["start_seconds"] is not None]
        arrays = [job["array_job_id"] for job in started if job["array_job_id"] is not None]
        pending = [job for job in list_jobs(base, "state=PENDING&limit=500") if job["reason"] == "Resources"]
        charted = list(islice((job for job in ended if _has_charts(base, job["shown_id"])), 2))
        if len(charted) > 1 and running and gpu and arrays and pending:
            break
        assert time.monotonic() < deadline, "the demo has no jobs of some kind"
        time.sleep(1)
    return DemoJobs(
        wasteful=charted[0]["shown_id"],
        other_wasteful=charted[1]["shown_id"],
        running=running[0]["shown_id"],
        gpu=gpu[0]["shown_id"],
        array=str(max(arrays, key=arrays.count)),
        user=charted[0]["user"],
        account=charted[0]["account"],
        node=_find_node(base, running[0]["shown_id"]),
        pending=next(job["shown_id"] for job in pending if job["shown_id"].isdecimal()),
    )


def _has_charts(base: str, shown_id: str) -> bool:
    """Return whether the page of a job shows its cores and memory over time: of some jobs other charts matter more."""
    page = httpx.get(f"{base}/jobs/{shown_id}", timeout=PATIENCE_SECONDS, trust_env=False).raise_for_status().text
    return all(f'data-chart="{name}"' in page for name in ("cpu", "memory"))


def _find_node(base: str, shown_id: str) -> str:
    response = httpx.get(f"{base}/jobs/{shown_id}/nodes.json", timeout=PATIENCE_SECONDS, trust_env=False)
    return str(response.raise_for_status().json()["rows"][0]["node"])


def list_jobs(base: str, query: str) -> list[dict[str, Any]]:
    """Return archived jobs."""
    response = httpx.get(f"{base}/api/v2/jobs?{query}", timeout=PATIENCE_SECONDS, trust_env=False)
    found: list[dict[str, Any]] = response.raise_for_status().json()["jobs"]
    return found
