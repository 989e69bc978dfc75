# SPDX-License-Identifier: Apache-2.0
"""Read the controller's configuration, as far as it changes what we may show."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from slurmscope.errors import CommandError, CommandRefused, MalformedAnswer
from slurmscope.model.controllers import ControllerConfig

ARGUMENTS = ("show", "config")

_LINE = re.compile(r"(?P<key>[A-Za-z_]+) += (?P<value>.*)")


def read_config(run: Callable[[str, Sequence[str]], bytes], user: str) -> ControllerConfig:
    """Read the configuration, and whether ``user`` sees the jobs of others where PrivateData hides them.

    To a user who does not, Slurm's commands print an empty list, and no error. While slurmdbd is down it is not known.
    """
    config = parse_config(run("scontrol", ARGUMENTS))
    if "jobs" not in config.private_data or user in ("root", config.slurm_user):
        return config
    try:
        answer = run("sacctmgr", ("--noheader", "--parsable2", "show", "user", user, "format=AdminLevel"))
    except CommandError:
        return config
    is_operator = answer.decode("utf-8", "replace").strip().lower().startswith(("operator", "admin"))
    return replace(config, sees_all_jobs=is_operator)


def find_own_user() -> str:
    """Return the name of the user that this process runs as; its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def require_all_jobs(config: ControllerConfig, user: str) -> None:
    """Raise CommandRefused if PrivateData hides jobs from this user: an empty list is no answer."""
    if not config.sees_all_jobs:
        raise CommandRefused(
            ("scontrol", *ARGUMENTS),
            f"PrivateData hides the jobs of others from the user {user}; make it an operator: "
            f"sacctmgr add user {user} account=root adminlevel=operator",
        )


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
