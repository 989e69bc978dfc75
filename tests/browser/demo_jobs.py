# SPDX-License-Identifier: Apache-2.0
"""Ask the demo's API which jobs there are, to visit some of every kind."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import httpx

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJobs:
    """Name a job of each kind, by the numbers that users write."""

    wasteful: str
    other_wasteful: str
    running: str
    gpu: str
    array: str
    user: str
    account: str


def find_jobs(base: str) -> DemoJobs:
    """Choose jobs; the demo goes on archiving older ones while it is looked at."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        jobs = _list(base, "limit=500")
        ended = [job for job in _list(base, "worst=critical&limit=100") if job["end_seconds"] is not None]
        running = [job for job in jobs if job["state"] == "RUNNING" and job["run_seconds"] > 600]
        gpu = [job for job in jobs if job["gpus"] and job["gpu_ratio"] is not None]
        arrays = [job["array_job_id"] for job in jobs if job["array_job_id"] is not None]
        if len(ended) > 1 and running and gpu and arrays:
            break
        assert time.monotonic() < deadline, "the demo has no jobs of some kind"
        time.sleep(1)
    return DemoJobs(
        wasteful=ended[0]["shown_id"],
        other_wasteful=ended[1]["shown_id"],
        running=running[0]["shown_id"],
        gpu=gpu[0]["shown_id"],
        array=str(max(arrays, key=arrays.count)),
        user=ended[0]["user"],
        account=ended[0]["account"],
    )


def _list(base: str, query: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{base}/api/v2/jobs?{query}", timeout=PATIENCE_SECONDS, trust_env=False)
    found: list[dict[str, Any]] = answer.raise_for_status().json()["jobs"]
    return found
