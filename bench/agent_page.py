# SPDX-License-Identifier: Apache-2.0
"""Measure the page of a node agent with 64 jobs in each profile: series, bytes, what a scrape and remote write cost.

The jobs are plain files in the shape of cgroup v2, each with a step, a task and four real processes. The agents of all
profiles run at the same time and are scraped in turns, so that a busy machine slows all alike.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

from bench.cgroups import V2_FILES
from bench.measure import judge_ratio, least_seconds
from bench.processes import run_sleeping
from slurmscope.cli.options import load_config
from slurmscope.cli.roles import find_role
from slurmscope.exporter.exporter import RunningExporter
from slurmscope.exporter.settings import MetricsProfile
from slurmscope.http.server.app import ScrapeRequest
from slurmscope.metrics.family import Family
from slurmscope.remote_write.encoding import RequestEncoder, WriteRequest

JOBS = 64
PROCESSES = 4 * JOBS
ROUNDS = 30
SERIES_LIMIT = 0.5
COST_LIMIT = 1.0
FILES = {
    **V2_FILES,
    "pids.current": "12\n",
    "pids.max": "4096\n",
    "cpuset.cpus": "0-3\n",
    "cpuset.cpus.effective": "0-3\n",
    "memory.swap.max": "0\n",
    "io.stat": "259:0 rbytes=45056 wbytes=3600384 rios=11 wios=145 dbytes=0 dios=0\n",
}
SCRAPE_INTERVALS_SECONDS = (15, 60)
PATIENCE_SECONDS = 60.0
AT_MS = 1_700_000_000_000


def main() -> int:
    """Print the figures of each profile and return 1 when a target is missed."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        groups = stack.enter_context(run_sleeping(folder, PROCESSES, JOBS))
        root = make_jobs(folder / "cgroup", groups)
        agents = {profile: stack.enter_context(closing(make_agent(root, profile))) for profile in MetricsProfile}
        for agent in agents.values():
            scrape(agent)  # the first one has no rates
        pages = {profile: scrape(agent) for profile, agent in agents.items()}
        seconds = least_seconds(*(partial(scrape, agent) for agent in agents.values()), rounds=ROUNDS)
        for profile, agent in agents.items():
            print(describe_writing(profile, agent.collect(PATIENCE_SECONDS)))
    costs = dict(zip(agents, seconds, strict=True))
    for profile, page in pages.items():
        print(describe(profile, page, costs[profile]))
    reports, standard = MetricsProfile.REPORTS, MetricsProfile.STANDARD
    series = count_series(pages[reports]) / count_series(pages[standard])
    return 0 if _judge(series, costs[reports] / costs[standard]) else 1


def _judge(series: float, cost: float) -> bool:
    of = "those of the standard profile"
    is_small = judge_ratio("series of the profile reports", f"{series:.0%}", series, SERIES_LIMIT, of)
    is_cheap = judge_ratio("CPU of its scrape", f"{cost:.0%}", cost, COST_LIMIT, of)
    return is_small and is_cheap


def make_jobs(root: Path, groups: list[list[int]]) -> Path:
    """Make the folders of one job per group of processes."""
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpu cpuset io memory pids\n")
    for number, pids in enumerate(groups, start=1):
        top = root / "system.slice" / "slurmstepd.scope" / f"job_{1_000_000 + number}"
        for below in ("", "step_0", "step_0/user", "step_0/user/task_0"):
            group = top / below
            group.mkdir(parents=True)
            for name, text in FILES.items():
                (group / name).write_text(text)
        (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return root


def make_agent(root: Path, profile: MetricsProfile, *, interval: str = "0s", **settings: object) -> RunningExporter:
    """Start the agent of a node with this tree of cgroups; it reads anew for every scrape after the interval."""
    given: Mapping[str, object] = {
        "path_cgroup": str(root),
        "metrics_profile": profile.value,
        "node_interval": interval,
        "slurm_private_data": "ignore",  # there is no slurm.conf that says what to hide
        **settings,
    }
    exporter = find_role("node").make_exporter(lambda: load_config("node", given))
    return RunningExporter(exporter, exporter.load())


def scrape(agent: RunningExporter) -> bytes:
    """Return the compressed page."""
    return b"".join(agent.scrape(ScrapeRequest(is_gzip=True)))


def count_series(page: bytes) -> int:
    """Count the samples of a page."""
    return sum(not line.startswith(b"#") for line in page_text(page).splitlines())


def page_text(page: bytes) -> bytes:
    """Decompress a page, which has several parts."""
    text = b""
    while page:
        decompressor = zlib.decompressobj(wbits=31)
        text += decompressor.decompress(page)
        page = decompressor.unused_data
    return text


def describe_writing(profile: MetricsProfile, families: list[Family]) -> str:
    """Return the size of a request of remote write, and what it costs to encode one."""
    encoder = RequestEncoder({"instance": "n0001", "job": "slurm-nodes"})

    def encode() -> list[WriteRequest]:
        return list(encoder.encode(families, AT_MS))

    requests = encode()
    (seconds,) = least_seconds(encode, rounds=ROUNDS)
    samples, size = sum(r.samples for r in requests), sum(len(r.body) for r in requests)
    return (
        f"remote write of {JOBS} jobs, profile {profile}: {samples:,} samples in {size / 1e3:.0f} kB, "
        f"{seconds * 1e3:.1f} ms of CPU"
    )


def describe(profile: MetricsProfile, page: bytes, seconds: float) -> str:
    """Return the figures of a page, and what they mean for a thousand nodes."""
    series = count_series(page)
    rates = ", ".join(f"{1000 * series / every:,.0f} samples/s every {every} s" for every in SCRAPE_INTERVALS_SECONDS)
    return (
        f"page of {JOBS} jobs, profile {profile}: {series:,} series, {len(page_text(page)) / 1e3:.0f} kB, "
        f"{len(page) / 1e3:.1f} kB compressed, {seconds * 1e3:.1f} ms of CPU; 1,000 nodes: {1000 * series / 1e6:.1f} "
        f"million series, {rates}"
    )
