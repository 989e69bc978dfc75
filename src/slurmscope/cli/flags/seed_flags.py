# SPDX-License-Identifier: Apache-2.0
"""Translate the command lines of the tools that slurmscope replaces.

Those take long flags with one dash, and booleans as ``-flag=false``. The arguments are rewritten before click
parses them, so no other code has to know the old spelling.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence

RENAMED = {
    "web.log-level": "log.level",
    "slurm.collect-diags": "collector.scheduler",
    "slurm.collect-licenses": "collector.licenses",
    "slurm.collect-limits": "collector.limits",
}
"""Renamed flags: old name to new name."""

REPLACED = {"slurm.cli-fallback": {"": "--slurm.backend=text", "no-": "--slurm.backend=json"}}
"""Booleans that became one value of a setting."""

_COMMAND = "slurmscope chooses the columns itself; set the directory of Slurm's commands with --slurm.bin-path."
_LUSTRE = "It is a flag of slurmscope cluster."

REMOVED = {
    "slurm.squeue-cli": _COMMAND,
    "slurm.sinfo-cli": _COMMAND,
    "slurm.diag-cli": _COMMAND,
    "slurm.lic-cli": _COMMAND,
    "slurm.sacctmgr-cli": _COMMAND,
    "slurm.scredits-cli": "scredits is not part of Slurm; remove the flag.",
    "slurm.collect-credits": "scredits is not part of Slurm; remove the flag.",
    "promserver": _LUSTRE,
    "timerange": _LUSTRE,
    "urlReads": _LUSTRE,
    "urlWrites": _LUSTRE,
    "port": "Use --web.listen-address=:PORT.",
    "timeout": "Use --slurm.timeout.",
    "log": "Use --log.level.",
    "version": "Use slurmscope --version.",
    "timer": "The agent is scraped; set scrape_interval in prometheus.yml.",
    "t": "The agent is scraped; set scrape_interval in prometheus.yml.",
    "blacklist": "Drop series in prometheus.yml with metric_relabel_configs.",
    "b": "Drop series in prometheus.yml with metric_relabel_configs.",
}
"""Flags of replaced tools that have no counterpart, and what to do instead."""

_ANY = re.compile(r"--?(?P<name>[a-zA-Z][a-zA-Z0-9.-]*)(?:=.*)?\Z", re.DOTALL)
_LONG = re.compile(r"--?(?P<name>[a-z][a-z0-9-]*(?:\.[a-z0-9-]+)+)(?:=(?P<value>.*))?\Z", re.DOTALL)
_BOOLEANS = {"true": "", "t": "", "1": "", "false": "no-", "f": "no-", "0": "no-"}


def translate(arguments: Sequence[str], booleans: Collection[str]) -> list[str]:
    """Return the arguments in the current spelling; arguments after ``--`` are unchanged.

    ``booleans`` are the flags that take no value.
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    translated = [new for argument in arguments[:end] for new in _translate_one(argument, booleans)]
    return translated + list(arguments[end:])


def explain_removed(arguments: Iterable[str]) -> str:
    """Return what to do instead of the first flag that a replaced tool had and slurmscope does not; or nothing."""
    for argument in arguments:
        match = _ANY.match(argument)
        if match and match["name"] in REMOVED:
            return f"{argument.partition('=')[0]} is not available. {REMOVED[match['name']]}"
    return ""


def _translate_one(argument: str, booleans: Collection[str]) -> Iterator[str]:
    match = _LONG.match(argument)
    if not match:
        yield argument
        return
    name, value = RENAMED.get(match["name"], match["name"]), match["value"]
    prefix = _BOOLEANS.get((value or "").lower())
    if name in REPLACED and (value is None or prefix is not None):
        yield REPLACED[name][prefix or ""]
        return
    if prefix is not None and name in booleans:
        yield f"--{prefix}{name}"
    else:
        yield f"--{name}" if value is None else f"--{name}={value}"
