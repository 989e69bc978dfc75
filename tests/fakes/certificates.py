# SPDX-License-Identifier: Apache-2.0
"""Make certificates with the openssl command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import require_program

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Identity:
    """Hold the files of a certificate and its key."""

    cert: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Authority:
    """Hold an authority and certificates that it signed."""

    authority: Identity
    server: Identity
    other_server: Identity
    client: Identity
    stranger: Identity


def make_authority(folder: Path, name: str) -> Identity:
    """Make an authority that signs others."""
    made = Identity(folder / f"{name}.pem", folder / f"{name}.key")
    usage = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
    subject = ("-days", "2", "-subj", f"/CN={name}")
    _openssl("req", "-x509", *CURVE, *subject, *usage, "-keyout", made.key, "-out", made.cert)
    return made


def make_identity(folder: Path, name: str, authority: Identity, sans: str, *, usage: str = "") -> Identity:
    """Make a certificate with alternative names such as ``DNS:a,IP:::1``, signed by an authority."""
    made = Identity(folder / f"{name}.pem", folder / f"{name}.key")
    request = folder / f"{name}.csr"
    extensions = folder / f"{name}.ext"
    # Clients from Python 3.13 on insist on the key identifiers.
    lines = [f"subjectAltName={sans}", "subjectKeyIdentifier=hash", "authorityKeyIdentifier=keyid"]
    extensions.write_text("\n".join([*lines, *([f"extendedKeyUsage={usage}"] if usage else []), ""]))
    _openssl("req", "-new", *CURVE, "-subj", f"/CN={name}", "-keyout", made.key, "-out", request)
    signer = ("-CA", authority.cert, "-CAkey", authority.key, "-CAcreateserial", "-days", "2")
    _openssl("x509", "-req", "-in", request, *signer, "-extfile", extensions, "-out", made.cert)
    return made


def encrypt_key(key: Path, encrypted: Path) -> None:
    """Write a copy of a key that needs a password."""
    _openssl("pkey", "-in", key, "-aes256", "-passout", "pass:secret", "-out", encrypted)


def _openssl(*arguments: str | Path) -> None:
    subprocess.run([require_program("openssl"), *map(str, arguments)], check=True, capture_output=True, timeout=60)
