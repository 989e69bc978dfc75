# SPDX-License-Identifier: Apache-2.0
"""Resolve settings from flags, environment, TOML files and defaults.

This is the only module that knows where a value comes from, and the only one that reads the environment.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from slurmscope.core.errors import ConfigError
from slurmscope.core.settings import Section, Setting, environment_name, parse_list, parse_text, setting
from slurmscope.core.units import format_size

T = TypeVar("T")

FILE_SIZE_LIMIT_BYTES = 1 << 20
_PASSWORD_LIMIT_BYTES = 4096
SYSTEM_FOLDER = Path("/etc/slurmscope")

_REMOVED = {
    "use slurm.poll-limit, or slurm.slow-interval for what changes slowly": "slurm.interval.",
    "use collector.lustre.dialect; for other names, write recording rules in Prometheus": (
        "collector.lustre.read-metric collector.lustre.write-metric collector.lustre.metadata-metric "
        "collector.lustre.job-label collector.lustre.target-label collector.lustre.operation-label "
        "collector.lustre.filesystem-label"
    ),
    "use collector.lustre.range, rates are those of the last two samples in it": "collector.lustre.rate",
    "use metrics.exclude, or metric_relabel_configs in Prometheus": (
        "collector.process_groups.user collector.process_groups.min-cpu-seconds "
        "collector.process_groups.min-resident-bytes collector.dbd.user collector.scheduler.user collector.shares.user"
    ),
    'remove it, and query command=~"NAME *", which finds padded names too': "collector.process_groups.pad-command",
    "use completions.state-file, counts then continue over restarts": "completions.look-back",
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
        "reporter.give-up rules.cpu-idle.critical-busy-ratio rules.serial-code.critical-cores "
        "rules.stopped-early.critical-idle-ratio rules.small-files.min-open-files rules.timed-out.stuck-ratio "
        "rules.kernel-time.min-system-seconds rules.lost-since-checkpoint.min-lost-seconds "
        "rules.time-over-requested.warning-used-ratio rules.memory-over-requested.critical-used-ratio "
        "rules.memory-growing.min-peak-bytes "
        "rules.memory-growing.warning-used-ratio rules.gpu-busy-without-work. rules.gpu-low.large-memory-bytes "
        "rules.gpu-unused-memory.max-utilization-ratio rules.too-many-nodes.cores-per-node "
        "rules.too-many-nodes.memory-per-node-bytes reporter.thin-curves-points collector.events.reasons "
        "sd.file-interval collector.process_groups.groups-per-user collector.lustre.programs collector.lustre.top-jobs"
    ),
    "use port=PORT in the address, or in sd.file-filter": "sd.port",
    "write the currency in energy.price, as in 0.25 USD": "energy.currency",
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
    "use reporter.interval, a job is summarized two intervals after its end": "reporter.settle",
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
    files: tuple[Path, ...] = ()

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
    files: Sequence[Path] = (),
    other_keys: Callable[[], Iterable[str]] = tuple,
) -> Config:
    """Resolve every setting: flag before environment before files before default.

    ``flags`` holds the given values by key. Of ``files``, a later one overrides single keys of those before it.
    ``other_keys`` returns the keys of other services that may share a file. All problems are reported in one
    ConfigError, one line each.
    """
    sections = tuple(sections)
    in_files = {key: (value, file) for file in files for key, value in read_file(file).items()}
    problems: list[str] = []
    values: dict[str, Resolved] = {}
    known = [s for section in sections for s in section.settings()]
    for declared in known:
        given, origin = _given(declared, flags, environment, in_files)
        try:
            values[declared.key] = Resolved(given if origin == "default" else declared.parse(given), origin)
        except ValueError as error:
            problems.append(f"{_where(declared, origin)}: {error}")
    problems += _removed_variables(environment, {name for s in known for name in s.environment})
    problems += _unknown_keys(in_files, [s.key for s in known], other_keys)
    if problems:
        raise ConfigError("\n".join(problems))
    return Config(sections, values, tuple(files))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionSettings:
    """Which extensions of the site are loaded."""

    load: tuple[str, ...] = setting(
        (),
        "Extension of this site to load, by the name of its entry point; nothing else of installed packages is "
        "imported; repeatable.",
        parse=parse_list,
        metavar="NAME",
    )


EXTENSIONS = Section(name="extensions", type=ExtensionSettings, has_flags=False)


def named_extensions(files: Sequence[Path], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names in the configuration, which decide what other settings there are."""
    declared = next(EXTENSIONS.settings())
    own = {name: environment[name] for name in declared.environment if name in environment}
    keys = {key for file in files for key in read_file(file)}
    config = load((EXTENSIONS,), flags={}, environment=own, files=files, other_keys=lambda: keys)
    return config.of(ExtensionSettings).load


def find_files(
    *names: str, home: str = "", system: Path = SYSTEM_FOLDER, is_root: bool | None = None
) -> tuple[Path, ...]:
    """Return the configuration files that are read without being named: the site's, then that of the user.

    The first of ``names`` that the site has is its file. The others are files of other services: a user who may not
    read one of them goes without it. Root reads no file of a home folder, which sudo may leave to another user. Nor
    is one read in a home that this user may not enter: runuser and sudo may leave HOME as it was.
    """
    is_root = os.geteuid() == 0 if is_root is None else is_root
    found = []
    for name in names:
        site = system / f"{name}.toml"
        if _is_usable(site) and (name == names[0] or os.access(site, os.R_OK)):
            found.append(site)
            break
    own = Path(home) / ".config" / "slurmscope" / f"{names[0]}.toml"
    if home.startswith("/") and not is_root and _is_usable(own, owners=(0, os.geteuid())):
        found.append(own)
    return tuple(found)


def _is_usable(path: Path, owners: Collection[int] = ()) -> bool:
    """Return whether there is such a file; raise a ConfigError if it is not one that may be read unasked."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        if owners and isinstance(error, PermissionError):
            return False
        raise ConfigError(f"configuration file {path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        # A pipe would block for ever.
        raise ConfigError(f"configuration file {path} is not a regular file; remove it, or use --config.file")
    if status.st_mode & stat.S_IWOTH or (owners and status.st_uid not in owners):
        raise ConfigError(f"configuration file {path} can be changed by another user; correct its owner and mode")
    return True


def find_replacement(key: str) -> str:
    """Return what to use instead of a removed setting, by key or flag; empty if there never was one of that name."""
    return next((use for name, use in REMOVED.items() if key == name or (name[-1] == "." and key.startswith(name))), "")


def read_file(path: Path) -> dict[str, object]:
    """Read a TOML file as a flat mapping from dotted key to value."""
    import tomllib

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
    in_files: Mapping[str, tuple[object, Path]],
) -> tuple[Any, str]:
    if declared.key in flags:
        return flags[declared.key], "flag"
    for name in declared.environment:
        if name in environment and (environment[name] or _has_empty_value(declared)):
            return environment[name], name
    if declared.key in in_files:
        value, file = in_files[declared.key]
        return value, str(file)
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
    in_files: Mapping[str, tuple[object, Path]], known: Sequence[str], other_keys: Callable[[], Iterable[str]]
) -> Iterator[str]:
    if in_files.keys() <= set(known):
        return
    candidates = {*known, *other_keys()}
    for key, (_, file) in in_files.items():
        if key not in candidates and (use := find_replacement(key)):
            yield f"{key} in {file} was removed: {use}"
        elif key not in candidates:
            import difflib

            nearest = difflib.get_close_matches(key, candidates, n=1)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            yield f"{file}: unknown key {key!r}{hint}"


def _flatten(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def read_password(path: Path) -> str:
    """Return the first line of a password file; raise ConfigError without any of it."""
    try:
        with path.open("rb") as stream:
            data = stream.read(_PASSWORD_LIMIT_BYTES + 1)
        line = data.decode().partition("\n")[0].rstrip("\r")
    except OSError as error:
        raise ConfigError(f"cannot read the password file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"the password file {path} is not UTF-8") from None
    if not line or len(data) > _PASSWORD_LIMIT_BYTES:
        raise ConfigError(f"the password file {path} is empty or longer than {_PASSWORD_LIMIT_BYTES} bytes")
    return line
