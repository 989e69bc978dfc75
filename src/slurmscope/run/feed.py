# SPDX-License-Identifier: Apache-2.0
"""Decide which samples of a command leave it: sent to the endpoint, printed, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.jobs.traced_run import TracedRun, TreeSample
from slurmscope.run.context import is_socket
from slurmscope.run.delivery import Sample, SampleDelivery, SampleWriter, Way, find_ways, parse_endpoint
from slurmscope.run.runner import Runner, RunPlan

EARLIEST_SECONDS = 0.1
"""Run time from which on a single sample shows something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """Where samples go."""

    endpoint: str = ""
    socket: Path
    token: str = ""
    use_munge: bool = False


class SampleFeed:
    """Give samples of a running command to a function, at most one in each interval."""

    def __init__(self, runner: Runner, plan: RunPlan, rate: float, give: Callable[[Sample], None]) -> None:
        self._runner = runner
        self._plan = plan
        self._rate = rate
        self._give = give
        self._writer: SampleWriter | None = None
        self._next_seconds = 0.0

    def take(self, sample: TreeSample) -> None:
        """Take a sample, and deliver it if it is due."""
        if sample.time_seconds >= self._next_seconds:
            # A little early rather than an interval late.
            self._next_seconds = sample.time_seconds + 0.9 * self._rate
            self.give(sample)

    def give(self, sample: TreeSample) -> None:
        pid, start_seconds = self._runner.pid, self._runner.start_seconds
        self._writer = self._writer or SampleWriter(
            self._plan, pid=pid, start_seconds=start_seconds, interval_seconds=self._rate
        )
        self._give(self._writer.write(sample))


def run_and_validate(runner: Runner, feed: SampleFeed) -> TracedRun:
    """Run a command until a sample was delivered, then end it."""
    given = False

    def take(sample: TreeSample) -> None:
        nonlocal given
        if not given and sample.time_seconds - runner.start_seconds >= EARLIEST_SECONDS:
            given = True
            feed.give(sample)
            runner.terminate()

    runner.on_sample = take
    run = runner.run()
    if not given:
        feed.give(run.last)
    return run


def run_and_give(runner: Runner, feed: SampleFeed) -> TracedRun:
    """Run a command, and deliver its samples, the last totals included."""
    before = runner.on_sample

    def take(sample: TreeSample) -> None:
        before(sample)
        feed.take(sample)

    runner.on_sample = take
    run = runner.run()
    feed.give(run.last)
    return run


def run_and_send(
    runner: Runner, plan: RunPlan, options: FeedOptions, rate: float, report: Callable[[str], None]
) -> TracedRun:
    """Run a command, and send its samples if there is somewhere to send them; the result has what was lost."""
    if not options.endpoint and not is_socket(options.socket):
        return runner.run()
    ways, problem = _find_ways(runner, plan, options)
    if not ways:
        return _with_loss(runner.run(), problem)
    delivery = SampleDelivery(ways, report)
    runner.starters.append(delivery.start)
    run = run_and_give(runner, SampleFeed(runner, plan, rate, delivery.put))
    return _with_loss(run, delivery.end().describe_loss())


def _find_ways(runner: Runner, plan: RunPlan, options: FeedOptions) -> tuple[tuple[Way, ...], str]:
    """Return the ways to the endpoint, and a sentence if there should be one but is none."""
    try:
        endpoint = parse_endpoint(options.endpoint) if options.endpoint else None
    except ValueError as error:
        return (), f"Samples were not sent: {error}."
    if plan.slurm.job_id is None:
        return (), "Samples were not sent: there is no job ID; set it with --jobid." if endpoint else ""
    munge = runner.start_helper if options.use_munge else None
    return find_ways(options.socket, endpoint, token=options.token, munge=munge), ""


def _with_loss(run: TracedRun, loss: str) -> TracedRun:
    return replace(run, losses=(loss,)) if loss else run
