# SPDX-License-Identifier: Apache-2.0
"""Let the portal identify users of the cluster by munge."""

from __future__ import annotations

import pwd
from collections.abc import Mapping

from slurmscope.config import Config
from slurmscope.errors import ConfigError
from slurmscope.http_client.address import parse_address
from slurmscope.portal.settings import PortalSettings
from slurmscope.portal.sign_in.munge_credential import MungeCredentials
from slurmscope.services.reporting.settings import MailSettings
from slurmscope.services.trace.rates import RateBuckets
from slurmscope.sources.slurm.munge import find_munge_socket
from slurmscope.sources.slurm.unmunge import decode_credential

CREDENTIALS_PER_SECOND = 20.0
"""Munge credentials of one address, such as a login node: each costs a process."""


def open_munge(config: Config, environment: Mapping[str, str]) -> MungeCredentials | None:
    """Return what checks munge credentials, None if they are not accepted; raise ConfigError without a portal URL."""
    if not config.of(PortalSettings).munge:
        return None
    try:
        portal = parse_address(config.of(MailSettings).portal_url)
    except ValueError as error:
        raise ConfigError(
            "portal.munge needs the address that users call the portal by, such as mail.portal-url = "
            '"https://jobs.example.org": a credential is valid for that portal only'
        ) from error
    socket_path = find_munge_socket(environment)
    return MungeCredentials(
        portal,
        decode=lambda text: decode_credential(text, socket_path, environment),
        find_name=_find_name,
        wait_seconds=RateBuckets(CREDENTIALS_PER_SECOND).take,
    )


def _find_name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return None
