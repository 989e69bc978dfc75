# SPDX-License-Identifier: Apache-2.0
"""Read the controller's configuration, as far as it changes what may be shown."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slurmscope.core.errors import MalformedAnswer
from slurmscope.slurm.command import RunCommand

# Labels that would reveal what PrivateData hides from ordinary users.
_HIDDEN = {
    "jobs": frozenset({"user", "username", "user_name", "jobid", "slurm_job"}),
    "users": frozenset({"user", "username", "user_name", "jobid", "slurm_job"}),
    "accounts": frozenset({"account"}),
}
ALL_HIDDEN_LABELS = frozenset().union(*_HIDDEN.values())
"""What is hidden while PrivateData is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """One controller; its role is ``primary``, ``backup``, or ``backup1``, ``backup2`` and so on."""

    host: str
    role: str
    is_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """All controllers; empty if none answered and their names are not known."""

    controllers: tuple[Controller, ...] = ()

    @property
    def is_up(self) -> bool:
        """Return whether at least one controller answers."""
        return any(controller.is_up for controller in self.controllers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerConfig:
    """The cluster name, the Slurm version, Slurm's own user, and the PrivateData setting."""

    cluster_name: str = ""
    slurm_version: str = ""
    slurm_user: str = ""
    private_data: frozenset[str] = frozenset()

    @property
    def hidden_labels(self) -> frozenset[str]:
        """Return the labels that reveal what PrivateData hides; other values hide nothing that is exported."""
        return frozenset().union(*(_HIDDEN.get(word, frozenset()) for word in self.private_data))


ARGUMENTS = ("show", "config")

_LINE = re.compile(r"(?P<key>[A-Za-z_]+) += (?P<value>.*)")


def read_config(run: RunCommand) -> ControllerConfig:
    return parse_config(run("scontrol", ARGUMENTS))


def parse_config(answer: bytes) -> ControllerConfig:
    """Read the settings we care for; an answer without them is not a configuration."""
    values = {}
    for line in answer.decode("utf-8", "surrogateescape").splitlines():
        if match := _LINE.match(line):
            values[match["key"]] = match["value"].strip()
    if "PrivateData" not in values:
        raise MalformedAnswer("scontrol show config: the answer does not name PrivateData")
    private = values["PrivateData"].lower()
    return ControllerConfig(
        cluster_name=values.get("ClusterName", ""),
        slurm_version=values.get("SLURM_VERSION", ""),
        slurm_user=values.get("SlurmUser", "").partition("(")[0],
        private_data=frozenset() if private in ("", "none") else frozenset(private.split(",")),
    )
