# SPDX-License-Identifier: Apache-2.0
"""Read the controller's configuration, as far as it changes what may be shown, and whether jobs of others are seen.

To a user from whom PrivateData hides them, Slurm's commands print an empty list, and no error: readings of jobs fail.

Who may read a page decides: a client with a password or a certificate was admitted by the administrator, others are
like any user of Slurm. Where no slurm.conf can be read, only clients on this machine see series by user and job.
"""

from __future__ import annotations

import logging
import os
import pwd
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from slurmscope.core.check import Check
from slurmscope.core.errors import CommandMissing, CommandRefused, ConfigError, MalformedAnswer, SourceError
from slurmscope.core.log import fields
from slurmscope.core.watched_file import Watch, WatchedFile
from slurmscope.http.server.app import Audience

if TYPE_CHECKING:
    from slurmscope.slurm.command import RunCommand

logger = logging.getLogger(__name__)

# Labels that would reveal what PrivateData hides from ordinary users; uid and job_id are for extensions of a site.
_OF_USERS = frozenset({"user", "username", "user_name", "uid", "jobid", "job_id", "slurm_job"})
_HIDDEN = {
    "jobs": _OF_USERS,
    "users": _OF_USERS,
    "accounts": frozenset({"account"}),
}
ALL_HIDDEN_LABELS = frozenset().union(*_HIDDEN.values())
"""What is hidden while PrivateData is unknown."""

MAX_CONFIG_BYTES = 4 << 20
MAX_CONFIG_FILES = 64
PRIVATE_DATA_ADVICE = (
    'require a password or a client certificate (web.config.file), or set slurm.private-data = "ignore" if only '
    "Prometheus can reach this port; where slurm.conf is elsewhere, set SLURM_CONF"
)

_COMMENT = re.compile(r"(?<!\\)#.*")
_INCLUDE = re.compile(r"\s*include\s+(\S+)", re.IGNORECASE)
_WORDS = re.compile(r"(?:^|\s)PrivateData\s*=\s*\"?([A-Za-z,]*)", re.IGNORECASE)
_CLUSTER = re.compile(r"(?:^|\s)ClusterName\s*=\s*\"?([\w.-]+)", re.IGNORECASE)


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
    """The cluster name, the Slurm version, Slurm's own user, PrivateData, and the plugins that others depend on."""

    cluster_name: str = ""
    slurm_version: str = ""
    slurm_user: str = ""
    private_data: frozenset[str] = frozenset()
    accounting_storage: str = ""
    """Empty if the answer does not name it; ``none`` where jobs are not accounted."""
    process_tracking: str = ""

    @property
    def hidden_labels(self) -> frozenset[str]:
        """Return the labels that reveal what PrivateData hides; other values hide nothing that is exported."""
        return frozenset().union(*(_HIDDEN.get(word, frozenset()) for word in self.private_data))


CONFIG_FILES = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf")
"""Where slurm.conf is; the second is that of a slurmd that gets it from slurmctld."""


def config_files(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the paths at which slurm.conf may be."""
    return (environment["SLURM_CONF"],) if environment.get("SLURM_CONF") else CONFIG_FILES


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
    return ControllerConfig(
        cluster_name=values.get("ClusterName", ""),
        slurm_version=values.get("SLURM_VERSION", ""),
        slurm_user=values.get("SlurmUser", "").partition("(")[0],
        private_data=parse_private_data(values["PrivateData"]),
        accounting_storage=_plugin(values.get("AccountingStorageType")),
        process_tracking=_plugin(values.get("ProctrackType")),
    )


def parse_private_data(text: str) -> frozenset[str]:
    """Parse the words of PrivateData."""
    words = text.lower()
    return frozenset() if words in ("", "none") else frozenset(words.split(","))


def _plugin(value: str | None) -> str:
    """Return the name of a plugin without its type; Slurm prints (null) for one that is not set."""
    if value is None:
        return ""
    return "none" if value.lower() in ("", "(null)") else value.rpartition("/")[2]


Command = tuple[str, tuple[str, ...]]

CONTROLLER: Command = ("scontrol", ARGUMENTS)
"""Prints the PrivateData that squeue obeys."""
SLURMDBD: Command = ("sacctmgr", ("show", "configuration"))
"""Prints the PrivateData that sacct obeys: that of slurmdbd.conf, after that of slurm.conf."""

KNOWN_SECONDS = 600.0
"""How long an answer holds."""
RETRY_SECONDS = 60.0
"""How long the last answer holds if there is no new one."""


class JobVisibility:
    """Check the right of this user to see all jobs, rarely while it has it; safe to use from several threads.

    A right that was seen once holds while it cannot be read: Slurm's daemons keep it too. Without any answer, jobs
    count as hidden.
    """

    def __init__(
        self, run: RunCommand, command: Command, *, user: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Take the command that prints PrivateData; ``user`` is that of this process by default."""
        self._run = run
        self._command = command
        self._user = user or find_own_user()
        self._clock = clock
        self._was_granted = False
        self._check_at = clock()

    def require(self) -> None:
        """Raise CommandRefused if jobs of others are hidden, or if that was never known."""
        if self._user == "root" or self._clock() < self._check_at:
            return
        try:
            self._was_granted = self._sees_all()
        except CommandMissing:  # jobs come from slurmrestd, under the name in its token
            return
        except SourceError as error:
            if not self._was_granted:
                raise self._refusal(
                    f"it is not known whether PrivateData hides jobs from {self._user}: {error}"
                ) from error
            self._check_at = self._clock() + RETRY_SECONDS
            return
        if not self._was_granted:
            self._check_at = self._clock()
            raise self._refusal(
                f"PrivateData hides the jobs of others from the user {self._user}; make it an operator: "
                f"sacctmgr -i add user {self._user} account=root adminlevel=operator"
            )
        self._check_at = self._clock() + KNOWN_SECONDS

    def describe(self) -> str:
        """Return what PrivateData hides; raise CommandRefused or another SourceError where ``require`` does."""
        name, arguments = self._command
        private_data = parse_config(self._run(name, arguments)).private_data
        self.require()
        return f"PrivateData hides {', '.join(sorted(private_data)) or 'nothing'}; {self._user} sees all jobs"

    def _sees_all(self) -> bool:
        name, arguments = self._command
        config = parse_config(self._run(name, arguments))
        if "jobs" not in config.private_data or self._user == config.slurm_user:
            return True
        answer = self._run("sacctmgr", ("--noheader", "--parsable2", "show", "user", self._user, "format=AdminLevel"))
        return answer.decode("utf-8", "replace").strip().lower().startswith(("operator", "admin"))

    def _refusal(self, message: str) -> CommandRefused:
        name, arguments = self._command
        return CommandRefused((name, *arguments), message)


def find_own_user() -> str:
    """Return the name of the user that this process runs as; its number if it has no name."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


T = TypeVar("T")


def require_all_jobs(read: Callable[[], T], visibility: JobVisibility) -> Callable[[], T]:
    """Return a function that reads jobs, and raises CommandRefused unless jobs of others are visible."""

    def read_all() -> T:
        jobs = read()
        visibility.require()
        return jobs

    return read_all


def require_first(visibility: JobVisibility, read: Callable[[], T]) -> Callable[[], T]:
    """Return a function that checks first: for readings that do not return to a time that they have read."""

    def read_all() -> T:
        visibility.require()
        return read()

    return read_all


class PrivateData:
    """Know what PrivateData of slurm.conf hides now; safe to use from several threads."""

    def __init__(self, environment: Mapping[str, str], root: Path = Path("/")) -> None:
        """Take the environment, which may name slurm.conf, and where the root of the host is."""
        self._files = [root / file.lstrip("/") for file in config_files(environment)]
        self._root = root
        self._watched = WatchedFile(self._load)

    def hidden_labels(self, audience: Audience) -> frozenset[str]:
        """Return the labels whose series these readers must not get."""
        if audience is Audience.ADMITTED:
            return frozenset()
        found, problem = self._find()
        if found is not None:
            hidden = ControllerConfig(private_data=found).hidden_labels
        else:
            hidden = ALL_HIDDEN_LABELS if audience is Audience.NETWORK else frozenset()
        if hidden:
            message = "series by user, job or account are hidden from clients that are not authenticated"
            logger.warning(message, extra=fields(reason=problem or f"PrivateData={','.join(sorted(found or ()))}"))
        return hidden

    def check(self, *, are_clients_authenticated: bool) -> Check:
        """Check whether Prometheus gets series by user and job."""
        found, problem = self._find()
        if are_clients_authenticated:
            return Check(name="PrivateData", is_good=True, message="every client is authenticated, nothing is hidden")
        if found is None:
            message = f"not known ({problem}): series by user, job and account are hidden from other hosts"
            return Check(name="PrivateData", is_good=False, message=message, advice=PRIVATE_DATA_ADVICE)
        words = ", ".join(sorted(found)) or "nothing"
        if not ControllerConfig(private_data=found).hidden_labels:
            return Check(name="PrivateData", is_good=True, message=f"slurm.conf hides {words}")
        message = f"slurm.conf hides {words}: so does the page, since clients are not authenticated"
        return Check(name="PrivateData", is_good=False, message=message, advice=PRIVATE_DATA_ADVICE)

    def _find(self) -> tuple[frozenset[str] | None, str]:
        """Return the words of PrivateData, or None and why they are not known; what was known once holds."""
        try:
            return self._watched.get(), ""
        except (OSError, ConfigError) as error:
            return self._watched.last_good, str(error)

    def _load(self, watch: Watch) -> frozenset[str]:
        for file in self._files:
            watch(file)
            if file.exists():
                return frozenset().union(*map(parse_private_data, self._settings(file, watch)))
        raise ConfigError(f"there is no {', '.join(map(str, self._files))}")

    def _settings(self, file: Path, watch: Watch) -> Iterator[str]:
        """Yield each value that slurm.conf and the files that it includes have; with several, all hide."""
        waiting, cluster, number = [file], "", 0
        while waiting:
            current, number = waiting.pop(), number + 1
            if number > MAX_CONFIG_FILES:
                raise ConfigError(f"{file} includes more than {MAX_CONFIG_FILES} files")
            watch(current)
            for line in _read_lines(current):
                cluster = match[1] if (match := _CLUSTER.search(line)) else cluster
                if match := _INCLUDE.match(line):
                    name = match[1].strip('"').replace("%c", cluster)
                    waiting.append(self._root / name.lstrip("/") if name.startswith("/") else file.parent / name)
                yield from _WORDS.findall(line)
        if not cluster:
            raise ConfigError(f"{file} names no cluster: it is not complete")


def _read_lines(file: Path) -> list[str]:
    with file.open("rb") as opened:
        text = opened.read(MAX_CONFIG_BYTES + 1)
    if len(text) > MAX_CONFIG_BYTES:
        raise ConfigError(f"{file} is larger than {MAX_CONFIG_BYTES} bytes")
    lines = (_COMMENT.sub("", line) for line in text.decode("utf-8", "replace").splitlines())
    return re.sub(r"\\[ \t]*\n", "", "\n".join(lines)).split("\n")
