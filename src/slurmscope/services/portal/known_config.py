# SPDX-License-Identifier: Apache-2.0
"""Read the configuration of a controller before anything else, and keep the last one that could be read."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from slurmscope.errors import MalformedAnswer, SourceError
from slurmscope.model.controllers import ControllerConfig
from slurmscope.sources.slurm.commands import RunCommand
from slurmscope.sources.slurm.scontrol_config import read_config

KEEP_SECONDS = 600.0

T = TypeVar("T")


class KnownConfig:
    """Hold the cluster name of a controller, and what its PrivateData hides; safe to use from any thread.

    ``named`` is the cluster that the commands name; without it, they read that of this host. The address in slurmdbd
    may belong to another cluster that was set up on the same host later: then nothing is read from it.
    """

    def __init__(self, run: RunCommand, named: str = "") -> None:
        """Take what runs a command of Slurm in this cluster; nothing is run yet."""
        self._run = run
        self.named = named
        self._config: ControllerConfig | None = None
        self._read_at = 0.0

    @property
    def cluster(self) -> str:
        """Return the name of the cluster; without it, pending jobs have none."""
        return self.named or (self._config.cluster_name.lower() if self._config else "")

    @property
    def hidden(self) -> frozenset[str]:
        """Return what PrivateData hides; everything while it is not known."""
        return self._config.private_data if self._config else frozenset({"usage", "reservations"})

    def name(self, reading: str) -> str:
        """Return the name of a reading, with the cluster if it is another one."""
        return f"{reading} of {self.named}" if self.named else reading

    def guard(self, read: Callable[[], T]) -> Callable[[], T]:
        """Return a function that reads from a named cluster only if its controller is the right one."""
        return self.read_first(read) if self.named else read

    def read_first(self, read: Callable[[], T]) -> Callable[[], T]:
        """Return a function that reads the configuration, if it is old, and then something else."""

        def read_all() -> T:
            self._refresh()
            return read()

        return read_all

    def _refresh(self) -> None:
        if self._config is not None and time.monotonic() - self._read_at <= KEEP_SECONDS:
            return
        try:
            config = read_config(self._run)
        except SourceError:
            if self.named and self._config is None:
                raise
            return
        if self.named and config.cluster_name.lower() != self.named:
            self._config = None
            raise MalformedAnswer(f"the controller that slurmdbd names for {self.named} is that of another cluster")
        self._config, self._read_at = config, time.monotonic()
