# SPDX-License-Identifier: Apache-2.0
"""Hold why a job did not end well."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Hold what went wrong in a job, as far as accounting and measurements say."""

    explanation: str
    """What happened, in one or two sentences."""
    advice: str = ""
    step: str = ""
    """The step that failed first: ``batch`` is the script. Empty where accounting does not say."""
    nodes: str = ""
    """Where that step ran, as Slurm writes it: a single node, or a list."""
    end_seconds: int | None = None
    """When that step ended."""
    exit_code: int | None = None
    exit_signal: int | None = None
    stdout: str = ""
    """Where the output is; empty where it went to a terminal."""
    stderr: str = ""
    is_output_assumed: bool = False
    """Whether these are Slurm's default, which the script may have changed."""
    largest_task: str = ""
    """The task or process with the most memory, where one was measured."""
    needed_bytes: float | None = None
    """Memory per node up to the time limit, if it had continued to grow as it did; only for an OOM-killed job."""
