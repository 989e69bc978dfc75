# SPDX-License-Identifier: Apache-2.0
"""Certificates are read once, and again when one of their files is replaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.core.errors import ConfigError
from slurmscope.http.client.credentials import Certificates
from tests.fakes.certificates import make_authority


def names(certificates: Certificates) -> list[str]:
    """Return the subjects of the trusted authorities."""
    return [str(found["subject"]) for found in certificates.context().get_ca_certs()]


def test_context_is_kept_until_a_file_is_replaced(tmp_path: Path) -> None:
    first, second = make_authority(tmp_path, "first"), make_authority(tmp_path, "second")
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(first.cert.read_bytes())
    certificates = Certificates(ca_file, first.cert, first.key)
    context = certificates.context()

    assert context is certificates.context()
    assert ["((('commonName', 'first'),),)"] == names(certificates)
    second.cert.rename(ca_file)
    assert ["((('commonName', 'second'),),)"] == names(certificates)
    context = certificates.context()
    first.key.touch()
    assert context is not certificates.context()


def test_file_that_cannot_be_used_is_an_error_until_it_can(tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    certificates = Certificates(ca_file, None, None)
    with pytest.raises(ConfigError, match="No such file"):
        certificates.context()
    make_authority(tmp_path, "first").cert.rename(ca_file)
    certificates.context()


def test_authorities_of_the_system_are_read_once() -> None:
    certificates = Certificates(None, None, None)
    assert certificates.context() is certificates.context()
