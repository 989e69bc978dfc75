# SPDX-License-Identifier: Apache-2.0
"""Beside pages that the original Slurm exporter wrote about a real cluster, nothing is lost without a reason.

The check itself is tested with the same pages: whatever happens to one series of ours is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope.cli.roles import all_collectors, feature_metrics
from slurmscope.cluster import licenses, limits, scheduler, sinfo, squeue
from slurmscope.cluster.json import records
from slurmscope.exporter.collector import Role
from slurmscope.metrics.parse import Type
from slurmscope.migrate.check import PageComparison, check_pages, declare, known_metrics
from slurmscope.migrate.pages import Page, parse_page, read_page
from slurmscope.slurm import config
from tests.fakes.command_line import run_here
from tests.fakes.compared_pages import compare_values
from tests.fakes.recorded_commands import write_recorded_commands

FOLDER = Path(__file__).parents[2] / "fixtures" / "originals" / "slurm-exporter"
CONFIG = b"ClusterName             = lab\nPrivateData             = none\nSLURM_VERSION           = 22.05.8\n"
COMMANDS = {
    ("squeue", squeue.ARGUMENTS): "squeue.txt",
    ("sinfo", sinfo.arguments("\0")): "sinfo.txt",
    ("squeue", records.SQUEUE_ARGUMENTS): "squeue.json",
    ("sinfo", records.SINFO_ARGUMENTS): "sinfo.json",
    ("sdiag", scheduler.ARGUMENTS): "sdiag.txt",
    ("scontrol", licenses.ARGUMENTS): "licenses.txt",
    ("scontrol", limits.ARGUMENTS): "assoc_mgr.txt",
}
DECLARED = declare((c for role in Role for c in all_collectors(role)), feature_metrics(Role.CLUSTER))
MODES = ("text", "json")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write commands that answer as the real ones did when the original was run."""
    folder = tmp_path_factory.mktemp("slurm")
    answers = {line: (FOLDER / name).read_bytes() for line, name in COMMANDS.items()}
    answers["scontrol", config.ARGUMENTS] = CONFIG
    answers["sinfo", ("--version",)] = b"slurm-wlm 22.05.8\n"
    write_recorded_commands(folder, answers)
    return folder


@pytest.fixture(scope="module")
def texts(recorded: Path) -> dict[str, str]:
    """Make our pages over the same answers."""
    flags = ("cluster", "--once", f"--slurm.bin-path={recorded}", "--slurm.timeout=60s")
    return {mode: run_here(*flags, f"--slurm.backend={mode}").stdout for mode in MODES}


@pytest.fixture(scope="module")
def ours(texts: dict[str, str]) -> dict[str, Page]:
    return {mode: parse_page(text.encode()) for mode, text in texts.items()}


def check(mode: str, page: Page) -> PageComparison:
    return check_pages(read_page(str(FOLDER / f"page-{mode}.prom")), page, DECLARED)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost(mode: str, ours: dict[str, Page]) -> None:
    comparison = check(mode, ours[mode])

    assert [] == [loss for loss in comparison.losses if loss.counts]
    assert comparison.compared > 40


@pytest.mark.parametrize("mode", MODES)
def test_command_agrees(mode: str, recorded: Path, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(f'[slurm]\nbin-path = "{recorded}"\nbackend = "{mode}"\ntimeout = "60s"\n')
    done = run_here("migrate", "check", str(FOLDER / f"page-{mode}.prom"), "--config.file", str(file))

    assert (0, "Nothing would be lost.") == (done.returncode, done.stdout.strip().rpartition("\n")[2])


# Of two processes, at two moments.
OF_PROCESS = {
    "process_cpu_seconds_total", "process_open_fds", "process_resident_memory_bytes", "process_virtual_memory_bytes",
    "process_network_receive_bytes_total", "process_network_transmit_bytes_total", "process_start_time_seconds",
    "process_max_fds", "process_virtual_memory_max_bytes",
    *(f"slurm_{of}_scrape_duration" for of in ("job", "node", "diag", "limit")),
}  # fmt: skip
# docs/migrate/slurm-exporter.md: binary units, and memory of whole jobs and of what the scheduler allocated ...
_OF_UNITS = {
    f"slurm_{name}"
    for name in ("mem_real", "mem_free", "mem_alloc", "partition_real_mem", "partition_free_mem",
                 "account_mem_limit", "user_mem_alloc", "account_job_state_mem_alloc", "feature_mem_alloc")
}  # fmt: skip
# ... features that jobs requested, jobs of several partitions, cycles where microseconds were; ...
_OF_JOBS = {"slurm_feature_total", "slurm_partition_job_state_total", "slurm_backfill_cycle_count"}
DIFFERENT = {
    "text": _OF_UNITS | _OF_JOBS | {"slurm_feature_cpu_alloc"},
    # ... and in JSON mode tasks of pending arrays, load times 100, base states, idle CPUs of nodes that are down.
    "json": _OF_UNITS | _OF_JOBS | {
        f"slurm_{name}"
        for name in ("account_job_state_total", "user_state_total", "pending_reason_total", "cpu_load", "cpus_idle",
                     "partition_cpu_load", "partition_idle_cpus", "cpus_per_state", "node_count_per_state",
                     "partition_node_count", "partition_alloc_cpus", "partition_alloc_mem")
    },
}  # fmt: skip


@pytest.mark.parametrize(("mode", "least"), [("text", 120), ("json", 95)])
def test_only_documented_values_differ(mode: str, least: int, texts: dict[str, str]) -> None:
    equal, different = compare_values((FOLDER / f"page-{mode}.prom").read_text(), texts[mode])

    assert DIFFERENT[mode] == different - OF_PROCESS
    assert equal >= least


def mutate(page: Page, name: str, place: int, value: float | None) -> Page:
    """Return the page with another value of one series, or without it."""
    samples = list(page[name].samples)
    if value is None:
        del samples[place]
    else:
        samples[place] = samples[place]._replace(value=value)
    return {**page, name: replace(page[name], samples=tuple(samples))}


def find_missed(mode: str, page: Page) -> Iterator[tuple[str, str]]:
    """Yield what the check did not notice: metric, and what was done to one of its series."""
    old = read_page(str(FOLDER / f"page-{mode}.prom"))
    for name, before in old.items():
        known = known_metrics().get(name)
        if known is None or before.type is Type.COUNTER or known[1].is_volatile:
            continue
        labels = {label for sample in before.samples for label in sample.labels}
        wanted = {tuple(sample.labels.get(label, "") for label in labels) for sample in before.samples}
        for place, sample in enumerate(page[name].samples):
            if tuple(sample.labels.get(label, "") for label in labels) in wanted and sample.value:
                for what, value in (("x10000", 10_000 * sample.value), ("0", 0.0), ("x1.1", 1.1 * sample.value)):
                    if check(mode, mutate(page, name, place, value)).is_lossless:
                        yield name, what
                if check(mode, mutate(page, name, place, None)).is_lossless:
                    yield name, "gone"


# What another reason may explain as well: memory per node or CPU of jobs we do not see, jobs without a feature, tasks
# of arrays, and idle CPUs of nodes that are down.
_OF_MEMORY = {("slurm_user_mem_alloc", "x1.1"), ("slurm_account_job_state_mem_alloc", "x1.1")}
_OF_FEATURES = {
    (f"slurm_feature_{of}", how) for of in ("total", "cpu_alloc", "mem_alloc") for how in ("0", "x1.1", "gone")
}
_OF_TASKS = {
    (f"slurm_{name}", "x1.1")
    for name in ("pending_reason_total", "user_state_total", "account_job_state_total", "feature_total")
} | {("slurm_partition_job_state_total", "x1.1")}
_OF_IDLE = {(f"slurm_{name}", how) for name in ("cpus_idle", "partition_idle_cpus") for how in ("0", "x1.1", "gone")}
MISSED = {"text": _OF_MEMORY | _OF_FEATURES, "json": _OF_TASKS | _OF_IDLE}


@pytest.mark.parametrize("mode", MODES)
def test_check_notices_what_happens_to_any_one_series(mode: str, ours: dict[str, Page]) -> None:
    assert set() == set(find_missed(mode, ours[mode])) - MISSED[mode]
