# SPDX-License-Identifier: Apache-2.0
"""Keep the groups of pushed metrics: check a push against all others, store it on disk, then show it.

Pushes are handled one at a time and may wait for the disk. The page never does: it reads what is in memory.

A file is written aside, synced and renamed. A file that cannot be read is left where it is and reported.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import ip_network
from pathlib import Path

from slurmscope.core.config import folder_path
from slurmscope.core.errors import ConfigError, OutputError, SlurmscopeError
from slurmscope.core.log import fields
from slurmscope.core.settings import byte_size, duration, setting
from slurmscope.core.units import parse_seconds
from slurmscope.exporter.outputs import write_textfile
from slurmscope.http.server.address import Network, parse_networks
from slurmscope.http.server.request import BadRequest
from slurmscope.inbox.group import Group, Key, key_of, parse_group
from slurmscope.inbox.pushed import (
    OwnMetrics,
    PushConflict,
    PushedFamily,
    check_beside,
    check_owners,
    find_related,
    label_family,
    text_length,
)
from slurmscope.metrics.parse import ParsedFamily

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxSettings:
    """The paths under /metrics/job/ to which batch jobs and scripts push metrics, as to a Pushgateway."""

    enabled: bool = setting(False, "Accept pushed metrics and expose them together with the exporter's own.")
    networks: tuple[Network, ...] = setting(
        (ip_network("127.0.0.0/8"), ip_network("::1/128")),
        "Network that may push while web.config.file requires neither password nor certificate; repeatable.",
        parse=parse_networks,
        metavar="NETWORK",
    )
    directory: Path | None = folder_path(
        None, "Directory that keeps pushed metrics across restarts; without it they are lost. Read at start only."
    )
    ttl: float = duration(
        7 * 86_400.0,
        "How long a group is exposed after its last push; 0 means forever. ?ttl=DURATION of a push shortens it.",
        parse=parse_seconds,
    )
    size: int = byte_size(
        64 * 1024 * 1024,
        "Maximum size of all groups together, as text, with one series per 640 bytes. A push may have 1/32 of the "
        "bytes, an eighth of them as text with the labels of its group, and a tenth of the series; there may be a "
        "tenth as many groups as series.",
    )

    @property
    def body_limit(self) -> int:
        """Return the maximum size of a push in bytes, also when decompressed."""
        return self.size // 32

    @property
    def text_limit(self) -> int:
        """Return the maximum size of a push as text, in which each series has the labels of its group."""
        return self.size // 8

    @property
    def series(self) -> int:
        return self.size // 640

    @property
    def series_per_group(self) -> int:
        return max(1, self.series // 10)

    @property
    def groups(self) -> int:
        return max(1, self.series // 10)


SUFFIX = ".prom"
FILE_LIMIT_BYTES = 256 * 1024 * 1024
_LOCK = "lock"


class GroupFiles:
    """Own a directory; no other process may use it at the same time."""

    def __init__(self, directory: Path) -> None:
        """Lock the directory, which is created if needed; raise ConfigError if it cannot be used."""
        self._directory = directory
        try:
            directory.mkdir(mode=0o700, exist_ok=True)
            self._lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"push-inbox.directory {directory} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(f"push-inbox.directory {directory} is used by another process") from error

    def close(self) -> None:
        os.close(self._lock)

    def load(self) -> Iterator[Group]:
        """Yield the groups of an earlier process, and remove what it left half written."""
        for path in sorted(self._directory.iterdir()):
            if path.suffix == ".part" and path.name.startswith("."):
                with contextlib.suppress(OSError):
                    path.unlink()
            elif path.suffix == SUFFIX:
                try:
                    yield _read(path)
                except (OSError, SlurmscopeError) as error:
                    logger.error("pushed metrics are not restored", extra=fields(file=path, error=error))

    def save(self, group: Group) -> None:
        """Write a group to disk; raise OutputError if it may not survive a crash."""
        write_textfile(self._path(group.key), (group.content(),))

    def remove(self, key: Key) -> None:
        path = self._path(key)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(f"{path} cannot be removed: {error.strerror}") from error

    def _path(self, key: Key) -> Path:
        return self._directory / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}{SUFFIX}"


def _read(path: Path) -> Group:
    # A pipe or a link in our own directory is not ours.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        return parse_group(stream.read(FILE_LIMIT_BYTES))


WAIT_SECONDS = 30.0
"""How long a push waits for those before it."""


class GroupStore:
    """All groups; every method may be called from any thread."""

    def __init__(
        self,
        settings: InboxSettings,
        own: OwnMetrics,
        *,
        label_length_limit: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Restore the groups of the directory, if there is one; raise ConfigError if it cannot be used."""
        self.settings = settings
        self.label_length_limit = label_length_limit
        self.version = 0
        self.expired = 0
        self.refused: Counter[str] = Counter()
        self._own = own
        self._clock = clock
        self._files = GroupFiles(settings.directory) if settings.directory else None
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._groups: dict[Key, Group] = {}
        self._by_name: dict[str, dict[Key, PushedFamily]] = {}
        self._owners: dict[str, Key] = {}
        self._next_expiry = math.inf
        self.series_count = 0
        self.size_bytes = 0
        self._restore()

    def push(
        self,
        labels: Mapping[str, str],
        families: tuple[ParsedFamily, ...],
        *,
        is_whole: bool,
        ttl_seconds: float | None = None,
    ) -> None:
        """Replace the whole group, or only its families of the same names.

        Raises BadRequest and changes nothing but the time of the last failure. ``ttl_seconds`` counts if it is shorter
        than that of the settings.
        """
        with self._one_at_a_time():
            self._expire()
            before = self._groups.get(key_of(labels), Group(labels=dict(labels)))
            # Before there is any: a few labels for thousands of series are hundreds of megabytes.
            if sum(text_length(family, labels) for family in families) > self.settings.text_limit:
                raise BadRequest(413, f"The push has more than {self.settings.text_limit} bytes as text.", "too_large")
            try:
                pushed = {f.name: label_family(f, labels, self.label_length_limit) for f in families}
                kept = {} if is_whole else {n: f for n, f in before.families.items() if n not in pushed}
                self._check(before.key, pushed, kept)
            except PushConflict as problem:
                self._note_failure(before)
                raise BadRequest(400, f"The push is refused: {problem}.", "conflict") from problem
            group = replace(before, families={**kept, **pushed}, pushed_at=self._clock(), ttl_seconds=ttl_seconds)
            self._check_room(group)
            self._save(group)

    def delete(self, labels: Mapping[str, str]) -> None:
        with self._one_at_a_time():
            self._expire()
            self._remove(key_of(labels))

    def reconfigure(self, settings: InboxSettings, label_length_limit: int) -> None:
        """Use other limits from now on; the directory stays."""
        self.settings = settings
        self.label_length_limit = label_length_limit
        self._next_expiry = 0.0

    def count_refusal(self, reason: str) -> None:
        with self._reading:
            self.refused[reason or "other"] += 1

    def groups(self) -> tuple[Group, ...]:
        """Return all groups that have not expired, in order."""
        self._expire_if_due()
        with self._reading:
            return tuple(self._groups[key] for key in sorted(self._groups))

    def close(self) -> None:
        if self._files:
            self._files.close()

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        if not self._writing.acquire(timeout=WAIT_SECONDS):
            raise BadRequest(503, "The inbox is still writing other pushes.", "busy")
        try:
            yield
        except OutputError as error:
            logger.error("pushed metrics cannot be stored", extra=fields(error=error))
            raise BadRequest(500, "The push cannot be stored; the log of the server says why.", "storage") from error
        finally:
            self._writing.release()

    def _check(self, key: Key, pushed: Mapping[str, PushedFamily], kept: Mapping[str, PushedFamily]) -> None:
        for family in pushed.values():
            self._own.check(family)
            check_owners(family, self._owners, key)
            for name in (family.name, *find_related(family)):
                # One other group is enough: all of them have the same type.
                elsewhere = (one for other, one in self._by_name.get(name, {}).items() if other != key)
                for other_family in (next(elsewhere, None), kept.get(name), pushed.get(name)):
                    if other_family is not None:
                        check_beside(family, other_family)

    def _check_room(self, group: Group) -> None:
        before = self._groups.get(group.key)
        limits = self.settings
        if group.series_count > limits.series_per_group:
            raise BadRequest(413, f"The group has more than {limits.series_per_group} series.", "limit")
        if before is None and len(self._groups) >= limits.groups:
            raise BadRequest(503, f"There are already {limits.groups} groups.", "full")
        if self.series_count - (before.series_count if before else 0) + group.series_count > limits.series:
            raise BadRequest(503, f"All groups together have more than {limits.series} series.", "full")
        if self.size_bytes - (before.size_bytes if before else 0) + group.size_bytes > limits.size:
            raise BadRequest(503, f"All groups together are larger than {limits.size} bytes.", "full")

    def _note_failure(self, before: Group) -> None:
        group = replace(before, failed_at=self._clock())
        self._check_room(group)
        self._save(group)

    def _save(self, group: Group) -> None:
        if self._files:
            self._files.save(group)
        with self._reading:
            self._forget(group.key)
            self._add(group)

    def _remove(self, key: Key) -> None:
        if key not in self._groups:
            return
        if self._files:
            self._files.remove(key)
        with self._reading:
            self._forget(key)

    def _add(self, group: Group) -> None:
        self._groups[group.key] = group
        self._next_expiry = min(self._next_expiry, group.expires_at(self.settings.ttl))
        for name, family in group.families.items():
            self._by_name.setdefault(name, {})[group.key] = family
            self._owners.update(dict.fromkeys(family.samples, group.key))
        self.series_count += group.series_count
        self.size_bytes += group.size_bytes
        self.version += 1

    def _forget(self, key: Key) -> None:
        group = self._groups.pop(key, None)
        if group is None:
            return
        self.version += 1
        self.series_count -= group.series_count
        self.size_bytes -= group.size_bytes
        for name, family in group.families.items():
            for series in family.samples:
                del self._owners[series]
            del self._by_name[name][key]
            if not self._by_name[name]:
                del self._by_name[name]

    def _expire_if_due(self) -> None:
        """Expire groups unless a push is being written: then the next page does it."""
        if self._writing.acquire(blocking=False):
            try:
                self._expire()
            finally:
                self._writing.release()

    def _expire(self) -> None:
        if self._clock() < self._next_expiry:
            return
        for group in [group for group in self._groups.values() if self._is_expired(group)]:
            self._remove_file(group.key)
            with self._reading:
                self._forget(group.key)
            self.expired += 1
        longest = self.settings.ttl
        self._next_expiry = min((group.expires_at(longest) for group in self._groups.values()), default=math.inf)

    def _is_expired(self, group: Group) -> bool:
        return group.expires_at(self.settings.ttl) <= self._clock()

    def _remove_file(self, key: Key) -> None:
        """Remove the file of an expired group; one that stays has expired at the next start, too."""
        try:
            if self._files:
                self._files.remove(key)
        except OutputError as error:
            logger.error("expired metrics cannot be removed", extra=fields(error=error))

    def _restore(self) -> None:
        if not self._files:
            return
        now = self._clock()
        for group in self._files.load():
            # A clock that was ahead must not make a group live longer.
            found = replace(group, pushed_at=min(group.pushed_at, now), failed_at=min(group.failed_at, now))
            if self._is_expired(found):
                self._remove_file(found.key)
                continue
            try:
                self._check(found.key, found.families, {})
                self._check_room(found)
            except (PushConflict, BadRequest) as problem:
                logger.error("pushed metrics are not restored", extra=fields(labels=dict(found.labels), error=problem))
                continue
            with self._reading:
                self._add(found)
