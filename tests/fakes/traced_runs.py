# SPDX-License-Identifier: Apache-2.0
"""Make runs of commands for tests of what summarizes and renders them."""

from __future__ import annotations

from dataclasses import replace

from slurmscope.jobs.traced_run import Allowance, SlurmContext, TracedRun, TreeSample

START = 1_790_000_000.5
GIB = 1 << 30


def make_sample(elapsed: float, cpu: float, resident: int = GIB, **changed: object) -> TreeSample:
    """Make the sample of a moment; a quarter of the CPU time is the kernel's."""
    sample = TreeSample(
        START + elapsed, cpu * 0.75, cpu * 0.25, resident, 2, 8, read_chars=int(1000 * elapsed),
        write_chars=int(500 * elapsed), reads=int(elapsed), writes=int(elapsed), read_bytes=4096, write_bytes=8192,
    )  # fmt: skip
    return sample._replace(**changed)  # type: ignore[arg-type]


def make_run(**changed: object) -> TracedRun:
    """Make a run of ten minutes that kept one of four cores busy, with 1 GiB of 4."""
    run = TracedRun(
        command=("/opt/solver", "--input", "a b"),
        host="n1",
        user="ada",
        work_dir="/home/ada",
        start_seconds=START,
        wall_seconds=600.0,
        exit_code=0,
        exit_signal=0,
        allowance=Allowance(cores=4.0, memory_bytes=4 * GIB, memory_origin="machine"),
        slurm=SlurmContext(),
        samples=tuple(make_sample(10.0 * step, 10.0 * step) for step in range(61)),
        peak_resident_bytes=GIB,
        peak_processes=2,
        peak_threads=8,
        program_threads={"solver": 8},
        oom_kills=0,
    )
    return replace(run, **changed)  # type: ignore[arg-type]
