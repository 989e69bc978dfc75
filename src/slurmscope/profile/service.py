# SPDX-License-Identifier: Apache-2.0
"""Receive Slurm's own samples of steps and tasks, if a socket or address is configured, and push them if wanted.

A gateway keeps a group for ever. So each group is deleted when the last step of its job on the node has ended or timed
out, when the agent ends, and, if an earlier agent of this host could not do that, when the next one starts. A push that
timed out may still wait in a gateway that hangs, and be done after the deletion: then the group is deleted once more.

::

    CPUTime{step="0",task="1"} 1.98
    RSS{step="0",task="1"} 20480
    slurmscope_profile_pushed{host="n1"} 1

The labels are new: the older plugin had none, so steps and tasks overwrote each other. The last line marks groups that
are ours, so that they can be deleted.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.clock import run_periodically
from slurmscope.core.errors import OutputError
from slurmscope.core.log import fields
from slurmscope.exporter.outputs import PushGateway
from slurmscope.metrics.family import Family, Labels, Metric, MetricKind, gauge
from slurmscope.metrics.write import Format, write
from slurmscope.profile.events import Profile, ProfiledStep
from slurmscope.profile.feature import ProfileSettings
from slurmscope.profile.influxdb import InboxOptions, ProfileInbox
from slurmscope.profile.receiver import ProfileReceiver
from slurmscope.profile.steps import ProfileSteps, in_slurms_unit

logger = logging.getLogger(__name__)


PUSHED = gauge("slurmscope_profile_pushed", "1 for a group that the agent of this host has pushed.", "host")

_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")


class NodeProfiling:
    """The receivers and the pushes, if there are any."""

    def __init__(
        self,
        settings: ProfileSettings,
        *,
        grace_seconds: float,
        host: str,
        config_file: Path | None = None,
        find_running: Callable[[], Collection[int] | None] = lambda: None,
    ) -> None:
        """Take how long ended steps are served, and the name by which pushed groups are recognised as ours.

        ``find_running`` returns the jobs on this node, None if they are not known: writes do not say that a step ended.
        """
        self._inbox_options = InboxOptions(
            address=settings.influxdb_listen_address,
            config_file=config_file,
            has_gpus=settings.influxdb_gpus,
            interconnect=settings.influxdb_interconnect,
        )
        self._settings = settings
        self._find_running = find_running
        self._host = host
        self._steps = ProfileSteps(grace_seconds=grace_seconds, timeout_seconds=settings.timeout)
        self._receivers: list[ProfileReceiver | ProfileInbox] = []
        self._push: ProfilePush | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        settings = self._settings
        with ExitStack() as stack:
            if settings.socket is not None:
                self._receivers.append(stack.enter_context(closing(ProfileReceiver(settings.socket, self._steps))))
            if settings.influxdb_listen_address:
                inbox = ProfileInbox(self._inbox_options, self._steps)
                self._receivers.append(stack.enter_context(closing(inbox)))
            if settings.push:
                self._push = ProfilePush(settings.push, self._read_own, host=self._host)
                stack.enter_context(open_profile_push(self._push, settings.push_interval))
            yield

    def read(self) -> Profile:
        """Return the current steps, none if nothing is configured; raise SourceError if nothing can be received."""
        self._end_steps()
        profiles = [receiver.intake.read() for receiver in self._receivers]
        profile = next((profile for profile in profiles if profile.events), Profile())
        return replace(profile, push_errors=self._push.errors if self._push else None)

    def checks(self) -> Iterator[Check]:
        for receiver in self._receivers:
            yield from receiver.checks()

    def _read_own(self) -> Profile | None:
        """Return the current steps, None while another process receives all of them."""
        # Our plugin reports the end of nearly all steps: the jobs need not be read for each push.
        if self._settings.influxdb_listen_address:
            self._end_steps()
        profiles = [receiver.intake.read_own() for receiver in self._receivers]
        return next((profile for profile in profiles if profile is not None), None)

    def _end_steps(self) -> None:
        if (running := self._find_running()) is not None:
            self._steps.end_missing(running)


def pushed_families(steps: Iterable[ProfiledStep], host: str) -> Iterator[Family]:
    """Yield the last sample of all steps of one job, as Slurm took it, without impossible values."""
    samples: dict[str, dict[Labels, float]] = {}
    for step in steps:
        for (_, task), sample in step.samples.items():
            for name in sample.fields:
                value = in_slurms_unit(sample, name)
                # Sensors may have any name.
                if value is not None and _NAME.match(name):
                    samples.setdefault(name, {})[step.key.step, task] = value
    for name, values in sorted(samples.items()):
        yield Family(_metric(name), values)
    yield Family(PUSHED, {(host,): 1.0})


def _metric(name: str) -> Metric:
    return Metric(
        name=name,
        kind=MetricKind.UNKNOWN,
        help="As Slurm sampled it, in its own unit.",
        labels=("step", "task"),
        is_compat=True,
    )


TIMEOUT_SECONDS = 5.0
FINAL_SECONDS = 3.0
# A gateway that has just answered has soon done all that waited in it.
DELETE_AGAIN_SECONDS = 60.0
# A gateway that fails so often in a row is down: the rest waits for the next interval.
FAILURES_IN_A_ROW = 3

Group = tuple[int, str]
"""Job and node: the grouping key of the older plugin."""


class ProfilePush:
    """Keep one group for each profiled job and node."""

    def __init__(
        self,
        url: str,
        read: Callable[[], Profile | None],
        *,
        host: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the function that returns the current steps, None while another process receives them."""
        self.errors = 0
        self._gateway = PushGateway(url=url, job="none", timeout_seconds=TIMEOUT_SECONDS, attempts=1)
        self._read = read
        self._host = host
        self._clock = clock
        self._pushed: dict[Group, object] = {}
        self._unsure: set[Group] = set()
        """Groups that a failed push may still make."""
        self._delete_again: dict[Group, float] = {}
        self._has_cleaned_up = False
        self._failures = 0

    def push(self) -> None:
        """Delete the groups of ended steps, then push what has changed."""
        profile = self._read()
        if profile is None:
            return
        self._failures = 0
        if not self._has_cleaned_up:
            self._has_cleaned_up = self._try(self._delete_left_over)
        groups: dict[Group, list[ProfiledStep]] = {}
        for step in profile.steps:
            if step.samples and not step.has_ended:
                groups.setdefault((step.key.job_id, step.key.node), []).append(step)
        for group in [group for group in self._pushed if group not in groups]:
            self._delete(group)
        for group, steps in groups.items():
            self._delete_again.pop(group, None)
            if self._failures < FAILURES_IN_A_ROW:
                self._replace(group, steps)
        for group in [group for group, at in self._delete_again.items() if at <= self._clock()]:
            if self._try(self._group(group).delete):
                del self._delete_again[group]

    def close(self) -> None:
        """Delete all groups, as far as the gateway answers at once."""
        self._failures, until = 0, time.monotonic() + FINAL_SECONDS
        self._gateway = replace(self._gateway, timeout_seconds=1.0, deadline_seconds=1.0)
        for group in list(self._pushed):
            if time.monotonic() < until:
                self._delete(group)

    def _group(self, group: Group) -> PushGateway:
        job_id, node = group
        return replace(self._gateway, job=str(job_id), grouping={"instance": node})

    def _replace(self, group: Group, steps: list[ProfiledStep]) -> None:
        """Push a group if it has changed; one that could not be pushed is deleted later all the same."""
        content = [(step.key.step, dict(step.samples)) for step in steps]
        if self._pushed.get(group) == content:
            return
        has_put = self._try(partial(self._put, group, steps))
        self._pushed[group] = content if has_put else None
        if not has_put:
            self._unsure.add(group)

    def _put(self, group: Group, steps: list[ProfiledStep]) -> None:
        self._group(group).put(write(pushed_families(steps, self._host), Format.TEXT))

    def _delete(self, group: Group) -> None:
        if self._try(self._group(group).delete):
            del self._pushed[group]
            if group in self._unsure:
                self._unsure.discard(group)
                self._delete_again[group] = self._clock() + DELETE_AGAIN_SECONDS

    def _delete_left_over(self) -> None:
        """Delete the groups that an earlier agent of this host has pushed."""
        own = {(str(job_id), node) for job_id, node in self._pushed}
        for labels in self._gateway.labels_of(PUSHED.name):
            job, node = labels.get("job", ""), labels.get("instance", "")
            if labels.get("host") == self._host and job and node and (job, node) not in own:
                replace(self._gateway, job=job, grouping={"instance": node}).delete()

    def _try(self, action: Callable[[], object]) -> bool:
        """Run an action; return whether it succeeded. After too many failures nothing is tried any more."""
        if self._failures >= FAILURES_IN_A_ROW:
            return False
        try:
            action()
        except OutputError as error:
            self._failures += 1
            self.errors += 1
            logger.error("profiling samples not pushed", extra=fields(error=str(error)))
            return False
        self._failures = 0
        return True


@contextmanager
def open_profile_push(push: ProfilePush, interval_seconds: float) -> Iterator[None]:
    """Push at regular intervals until the block ends; then delete everything."""
    with run_periodically("profile-push", interval_seconds, push.push, stopping=threading.Event()):
        yield
    push.close()
