# SPDX-License-Identifier: Apache-2.0
"""Receive Slurm's own samples of steps and tasks, if a socket or address is configured, and push them if wanted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.profile.events import Profile
from slurmscope.profile.feature import ProfileSettings
from slurmscope.profile.influxdb import InboxOptions, ProfileInbox
from slurmscope.profile.push import ProfilePush, open_profile_push
from slurmscope.profile.receiver import ProfileReceiver
from slurmscope.profile.steps import ProfileSteps


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
