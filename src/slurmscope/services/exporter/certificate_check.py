# SPDX-License-Identifier: Apache-2.0
"""Check the certificate of the web configuration, for ``slurmscope doctor``: clients refuse one that has expired."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from slurmscope.errors import ConfigError
from slurmscope.model.check import Check
from slurmscope.outputs.http.webconfig import TlsSettings, read_web_config

ADVICE = "renew the certificate, or correct cert_file and key_file in the file that web.config.file names"
_TURNS = 10


def check_certificate(web_config_file: Path | None) -> Iterator[Check]:
    """Check the files and the dates of the certificate; nothing is checked where TLS is not set up."""
    if web_config_file is None:
        return
    try:
        tls = read_web_config(web_config_file).tls
        if tls is None:
            return
        message = f"{tls.cert_file} is valid until {find_expiry(tls)}"
    except ConfigError as error:
        yield Check(name="certificate", is_good=False, message=str(error), advice=ADVICE)
    else:
        yield Check(name="certificate", is_good=True, message=message)


def find_expiry(settings: TlsSettings) -> str:
    """Return the date of expiry; raise ConfigError for files that cannot be used or are not valid now.

    A client that trusts this very certificate connects to a server that has it, in memory: the ssl module decodes
    only certificates that it has verified.
    """
    import ssl

    from slurmscope.outputs.http.tls import TlsServer

    TlsServer(settings)  # raises an error that names the file
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.load_cert_chain(settings.cert_file, settings.key_file)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client_context.load_verify_locations(settings.cert_file)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context.wrap_bio(to_server, to_client, server_side=True)
    client = client_context.wrap_bio(to_client, to_server)
    try:
        for _ in range(_TURNS):
            for side in (client, server):
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(f"{settings.cert_file}: {error.verify_message}") from error
    except ssl.SSLError as error:
        raise ConfigError(f"{settings.cert_file}: {error.reason}") from error
    return str((client.getpeercert() or {}).get("notAfter", "an unknown date"))
