# SPDX-License-Identifier: Apache-2.0
"""Read every source of an exporter once, and explain what is missing."""

from __future__ import annotations

import importlib
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.config import Config
from slurmscope.core.errors import ConfigError
from slurmscope.core.log import escape
from slurmscope.core.units import format_bytes
from slurmscope.exporter.collector import Collector
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.webconfig import TlsSettings, read_web_config

CERTIFICATE_ADVICE = "renew the certificate, or correct cert_file and key_file in the file that web.config.file names"


def check_certificate(web_config_file: Path | None) -> Iterator[Check]:
    """Check the files and the dates of the certificate; nothing is checked where TLS is not set up."""
    if web_config_file is None:
        return
    try:
        tls = read_web_config(web_config_file).tls
        if tls is None:
            return
        message = f"{tls.cert_file or 'cert'} is valid until {find_expiry(tls)}"
    except ConfigError as error:
        yield Check(name="certificate", is_good=False, message=str(error), advice=CERTIFICATE_ADVICE)
    else:
        yield Check(name="certificate", is_good=True, message=message)


def find_expiry(settings: TlsSettings) -> str:
    """Return the date of expiry; raise ConfigError for files that cannot be used or are not valid now."""
    import ssl

    from slurmscope.http.server.tls import TlsServer, read_not_after

    TlsServer(settings)  # raises an error that names the file
    try:
        return read_not_after(settings) or "an unknown date"
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(f"{settings.cert_file or 'cert'}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise ConfigError(f"{settings.cert_file or 'cert'}: {error.reason}") from error


LOW_BYTES = 64 * 1024 * 1024
DISK_ADVICE = "make room: until then nothing is written there, and what is new is lost or waits"
PYTHON_ADVICE = (
    "this Python was built without what these modules need: use that of the distribution, or build it again with the "
    "headers of OpenSSL, SQLite, zlib and libffi"
)


def check_python(modules: Iterable[str]) -> Iterator[Check]:
    """Yield a check if modules of the standard library are missing, as in a Python that was built from source."""
    missing = []
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError:
            missing.append(module)
    if missing:
        message = f"Python {platform.python_version()} at {sys.executable} has no module {', '.join(missing)}"
        yield Check(name="python", is_good=False, message=message, advice=PYTHON_ADVICE)


def written_folders(config: Config) -> set[Path]:
    """Return the folders that an exporter with these settings writes to."""
    keys = {declared.key for declared in config.settings()}
    values = {key: config.values[key].value for key in _WRITTEN if key in keys}
    return {path if _WRITTEN[key] else path.parent for key, path in values.items() if isinstance(path, Path)}


_WRITTEN = {"completions.state-file": False, "output.textfile": False, "sd.file": False, "push-inbox.directory": True}
"""Settings with paths that are written to; whether they are those of folders."""


def check_disk(folders: Iterable[Path]) -> Iterator[Check]:
    """Check that there is room and that there are inodes for files; a folder that is missing is reported elsewhere."""
    for folder in sorted(folders):
        try:
            found = os.statvfs(folder)
        except OSError:
            continue
        free_bytes = found.f_bavail * found.f_frsize
        has_files = not found.f_files or found.f_favail > 0
        is_good = has_files and free_bytes >= min(LOW_BYTES, found.f_blocks * found.f_frsize // 10)
        message = f"{format_bytes(free_bytes)} free in {escape(str(folder))}"
        message += "" if has_files else ", but no inode for another file"
        yield Check(name="disk", is_good=is_good, message=message, advice="" if is_good else DISK_ADVICE)


TIMEOUT_SECONDS = 60.0

ADVICE = {
    "missing": "install the Slurm client commands, or set --slurm.bin-path to their directory",
    "timeout": "check that slurmctld and munge are running, try again later, or raise --slurm.timeout",
    "refused": "check that slurmctld and munge are running, and that this user has access",
    "failed": "run the command by hand as this user",
    "malformed": "report it as a bug, with the output of the command",
    "truncated": "set SLURM_BITSTR_LEN=0 in the environment of slurmrestd, and restart it",
    "bug": "report it as a bug, with what --log.level=error adds",
}


def examine(features: OpenFeatures, collectors: Iterable[Collector]) -> tuple[Check, ...]:
    """Read every source that the collectors need once, then run the checks of the exporter itself."""
    needed: dict[str, list[str]] = {}
    for collector in collectors:
        for name in collector.reading_names:
            needed.setdefault(name, []).append(collector.name)
    return (*_check_readings(features, needed), *features.checks())


def _check_readings(features: OpenFeatures, needed: dict[str, list[str]]) -> Iterator[Check]:
    until = time.monotonic() + TIMEOUT_SECONDS
    snapshots = features.read(needed, until)
    for name, collectors in sorted(needed.items()):
        reading, snapshot = features.readings[name], snapshots[name]
        yield Check(
            name=f"reading {name}",
            is_good=snapshot.error is None,
            message=snapshot.error or f"read in {reading.duration_seconds or 0:.2f} s",
            advice="" if snapshot.error is None else f"no metrics of {', '.join(collectors)}: {_advise(reading)}",
        )


def _advise(reading: SharedReading) -> str:
    reason = next(iter(reading.errors), "timeout")
    own_advice = "" if reason == "bug" else reading.advice
    return own_advice or ADVICE.get(reason, ADVICE["failed"])
