# SPDX-License-Identifier: Apache-2.0
"""Resolve settings from flags, environment, one TOML file and defaults.

This is the only module that knows where a value comes from, and the only one that reads the environment.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section, Setting, environment_name, parse_text, setting
from slurmscope.core.units import format_size

T = TypeVar("T")

FILE_SIZE_LIMIT_BYTES = 1 << 20

_REMOVED = {
    "use slurm.poll-limit, or slurm.slow-interval for what changes slowly": "slurm.interval.",
    "use collector.lustre.dialect; for other names, write recording rules in Prometheus": (
        "collector.lustre.read-metric collector.lustre.write-metric collector.lustre.metadata-metric "
        "collector.lustre.job-label collector.lustre.target-label collector.lustre.operation-label "
        "collector.lustre.filesystem-label"
    ),
    "use collector.lustre.range, rates are those of the last two samples in it": "collector.lustre.rate",
    "remove it, the 20 jobs that use a file system most are exported": "collector.lustre.top-jobs",
    "remove it, up to 200 programs are exported by name": "collector.lustre.programs",
    "use metrics.exclude, or metric_relabel_configs in Prometheus": (
        "collector.process_groups.user collector.process_groups.min-cpu-seconds "
        "collector.process_groups.min-resident-bytes collector.dbd.user collector.scheduler.user"
    ),
    "remove it, up to 200 groups of a user are exported by name": "collector.process_groups.groups-per-user",
    'remove it, and query command=~"NAME *", which finds padded names too': "collector.process_groups.pad-command",
    "remove it, the file is written every minute": "sd.file-interval",
    "use completions.state-file, counts then continue over restarts": "completions.look-back",
    "remove it, 50 reasons are exported": "collector.events.reasons",
    "use output.push-grouping to distinguish pushed groups": "output.push-job",
    "use trace.processes, from which the limits of jobs and users follow": (
        "trace.processes-per-job trace.processes-per-user trace.posts-per-job trace.posts-per-user"
    ),
    "use push-inbox.size, from which the other limits follow": (
        "push-inbox.body-limit push-inbox.groups push-inbox.series push-inbox.series-per-group"
    ),
    "remove it, the value is fixed": (
        "prometheus.max-answer-bytes prometheus.max-points prometheus.max-queries prometheus.retries "
        "metrics.label-length-limit gpu. profile.timeout profile.push-interval web.max-requests up.timeout "
        "portal.timeout mail.timeout accounting.timeout archive.timeout output.remote-write-max-age "
        "rules.memory-growing.min-run-seconds rules.time-over-requested.min-run-seconds "
        "rules.metadata-storm.min-run-seconds rules.tiny-requests.min-run-seconds "
        "rules.cpu-idle.min-cores rules.node-imbalance.min-mean-cores "
        "rules.serial-code.min-runnable-threads rules.core-imbalance.min-mean-core-seconds"
    ),
    "write accounting.host as HOST:PORT": "accounting.port",
    "write the path of the socket in accounting.host": "accounting.socket",
    "use rules.min-run-seconds": (
        "rules.memory-over-requested.min-run-seconds rules.cpu-idle.min-run-seconds "
        "rules.cpu-uneven-over-time.min-run-seconds rules.core-imbalance.min-run-seconds "
        "rules.serial-code.min-run-seconds rules.gpu-held-without-process.min-run-seconds "
        "rules.gpu-idle.min-run-seconds rules.gpu-low.min-run-seconds "
        "rules.node-imbalance.min-run-seconds rules.too-many-nodes.min-run-seconds "
        "rules.scratch-unused.min-run-seconds"
    ),
    "remove it, the sizes of nodes are those of sinfo": (
        "rules.too-many-nodes.cores-per-node rules.too-many-nodes.memory-per-node-bytes"
    ),
    "use reporter.interval, a job is summarized two intervals after its end": "reporter.settle",
    "remove it, thinned curves have 60 points": "reporter.thin-curves-points",
}
REMOVED = {key: use for use, keys in _REMOVED.items() for key in keys.split()}
"""Removed settings by key, flag, or prefix (with a dot at its end), and what to use instead."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A value and its origin: a flag, an environment variable, a file, or the default."""

    value: object
    origin: str


@dataclass(frozen=True, slots=True)
class Config:
    """The resolved settings of one role."""

    sections: tuple[Section, ...]
    values: Mapping[str, Resolved]
    file: Path | None = None

    def of(self, type_: type[T], name: str = "") -> T:
        """Return one section as its dataclass; ``name`` selects one of several sections of the same type."""
        section = next(s for s in self.sections if s.type is type_ and name in ("", s.name))
        return type_(**{s.attribute: self.values[s.key].value for s in section.settings()})

    def is_default(self, key: str) -> bool:
        """Return whether this key has its default, set by no flag, variable or file."""
        return self.values[key].origin == "default"

    def settings(self) -> Iterator[Setting]:
        for section in self.sections:
            yield from section.settings()


def load(
    sections: Iterable[Section],
    *,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    file: Path | None = None,
    other_keys: Callable[[], Iterable[str]] = tuple,
) -> Config:
    """Resolve every setting: flag before environment before file before default.

    ``flags`` holds the given values by key. ``other_keys`` returns the keys of other services that may share the
    file. All problems are reported in one ConfigError, one line each.
    """
    sections = tuple(sections)
    in_file = read_file(file) if file else {}
    problems: list[str] = []
    values: dict[str, Resolved] = {}
    known = [s for section in sections for s in section.settings()]
    for declared in known:
        given, origin = _given(declared, flags, environment, in_file, file)
        try:
            values[declared.key] = Resolved(given if origin == "default" else declared.parse(given), origin)
        except ValueError as error:
            problems.append(f"{_where(declared, origin)}: {error}")
    problems += _removed_variables(environment, {name for s in known for name in s.environment})
    problems += _unknown_keys(in_file, [s.key for s in known], other_keys, file)
    if problems:
        raise ConfigError("\n".join(problems))
    return Config(sections, values, file)


def find_replacement(key: str) -> str:
    """Return what to use instead of a removed setting, by key or flag; empty if there never was one of that name."""
    return next((use for name, use in REMOVED.items() if key == name or (name[-1] == "." and key.startswith(name))), "")


def read_file(path: Path) -> dict[str, object]:
    """Read a TOML file as a flat mapping from dotted key to value."""
    try:
        with path.open("rb") as stream:
            data = stream.read(FILE_SIZE_LIMIT_BYTES + 1)
        if len(data) > FILE_SIZE_LIMIT_BYTES:
            raise ConfigError(f"configuration file {path} is larger than {format_size(FILE_SIZE_LIMIT_BYTES)}")
        return dict(_flatten(tomllib.loads(data.decode("utf-8")), ""))
    except OSError as error:
        raise ConfigError(f"configuration file {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration file {path} is not UTF-8 text") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"configuration file {path} is not valid TOML: {error}") from error


def own_environment() -> Mapping[str, str]:
    return dict(os.environ)


def file_path(default: T, help: str, *, key: str = "") -> T:
    return setting(default, help, parse=parse_path, metavar="FILE", key=key)


def folder_path(default: T, help: str) -> T:
    return setting(default, help, parse=parse_path, metavar="DIR")


def parse_path(given: object) -> Path:
    text = parse_text(given)
    if not text:
        raise ValueError("the path is empty; name a file or folder")
    return Path(text)


def _given(
    declared: Setting,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    in_file: Mapping[str, object],
    file: Path | None,
) -> tuple[Any, str]:
    if declared.key in flags:
        return flags[declared.key], "flag"
    for name in declared.environment:
        if name in environment and (environment[name] or _has_empty_value(declared)):
            return environment[name], name
    if declared.key in in_file:
        return in_file[declared.key], str(file)
    return declared.default, "default"


def _has_empty_value(declared: Setting) -> bool:
    """Return whether an empty variable is a value: an empty list, or a missing path; else it counts as not set."""
    # A path is never skipped: a variable that was emptied by mistake must not start an exporter without its TLS file.
    return declared.is_repeatable or declared.default is None or isinstance(declared.default, Path)


def _where(declared: Setting, origin: str) -> str:
    if origin == "flag":
        return f"--{declared.flag}"
    return origin if origin in declared.environment else f"{declared.key} in {origin}"


def _removed_variables(environment: Mapping[str, str], known: Collection[str]) -> Iterator[str]:
    removed = [(environment_name(name), use) for name, use in REMOVED.items()]
    for variable, value in environment.items():
        for name, use in removed if value and variable not in known else ():
            if variable == name or (name[-1] == "_" and variable.startswith(name)):
                yield f"{variable} was removed: {use}"


def _unknown_keys(
    in_file: Mapping[str, object], known: Sequence[str], other_keys: Callable[[], Iterable[str]], file: Path | None
) -> Iterator[str]:
    if in_file.keys() <= set(known):
        return
    candidates = {*known, *other_keys()}
    for key in in_file:
        if key not in candidates and (use := find_replacement(key)):
            yield f"{key} in {file} was removed: {use}"
        elif key not in candidates:
            nearest = difflib.get_close_matches(key, candidates, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            yield f"{file}: unknown key {key!r}{hint}"


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value
