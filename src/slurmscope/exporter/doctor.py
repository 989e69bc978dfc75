# SPDX-License-Identifier: Apache-2.0
"""Read every source of an exporter once, and explain what is missing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.errors import ConfigError
from slurmscope.exporter.collector import Collector
from slurmscope.exporter.feature import OpenFeatures
from slurmscope.exporter.reading import SharedReading
from slurmscope.http.server.webconfig import TlsSettings, read_web_config

CERTIFICATE_ADVICE = "renew the certificate, or correct cert_file and key_file in the file that web.config.file names"
_TURNS = 10


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
    """Return the date of expiry; raise ConfigError for files that cannot be used or are not valid now.

    A client that trusts this very certificate connects to a server that has it, in memory: the ssl module decodes
    only certificates that it has verified.
    """
    import ssl

    from slurmscope.http.server.tls import TlsServer, load_identity, open_pem

    TlsServer(settings)  # raises an error that names the file
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_identity(server_context, settings)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    with open_pem(settings.cert_file, settings.cert) as cert_path:
        client_context.load_verify_locations(cert_path)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    try:
        for _ in range(_TURNS):
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(f"{settings.cert_file or 'cert'}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise ConfigError(f"{settings.cert_file or 'cert'}: {error.reason}") from error
    return str((client.getpeercert() or {}).get("notAfter", "an unknown date"))


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
