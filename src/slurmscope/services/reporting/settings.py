# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of reports, mails and digests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.services.exporter.settings import LogSettings
from slurmscope.services.reporting.client_settings import ClientSettings
from slurmscope.services.reporting.rule_settings import rule_sections
from slurmscope.settings import Section, one_of, parse_text, setting
from slurmscope.sources.accounting.settings import AccountingSettings
from slurmscope.sources.prometheus.settings import PrometheusSettings
from slurmscope.sources.slurm.commands import SlurmSettings
from slurmscope.store.archive.settings import ArchiveSettings
from slurmscope.store.recorder.settings import RecorderSettings
from slurmscope.units import parse_positive_seconds

_MAIL_ADDRESS = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[A-Za-z0-9.-]{1,253}")
_SERVER = re.compile(r"[A-Za-z0-9._-]{1,253}(:[0-9]{1,5})?|\[[0-9A-Fa-f:]{2,45}\](:[0-9]{1,5})?")
_DOMAIN = re.compile(r"[A-Za-z0-9.-]{0,253}")


def _matching(pattern: re.Pattern[str], what: str, given: object) -> str:
    text = parse_text(given)
    if not pattern.fullmatch(text):
        raise ValueError(f"{text!r} is not {what}")
    return text


def parse_mail_address(given: object) -> str:
    """Parse a mail address without a display name."""
    return _matching(_MAIL_ADDRESS, "a mail address such as slurmscope@example.org", given)


def parse_mail_server(given: object) -> str:
    """Parse the address of a mail server."""
    return _matching(_SERVER, "a server such as localhost:25", given)


def parse_domain(given: object) -> str:
    """Parse the domain of mail addresses."""
    return _matching(_DOMAIN, "a domain such as example.org", given)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """SMTP server and addresses for mails."""

    server: str = setting("localhost:25", help="SMTP server for mail.", parse=parse_mail_server, metavar="HOST[:PORT]")
    tls: str = setting(
        "none",
        help="Encryption of the SMTP connection: none, starttls, or tls (implicit TLS).",
        parse=one_of("none", "starttls", "tls"),
        metavar="none|starttls|tls",
    )
    user: str = setting("", help="User name for the SMTP server; empty disables authentication.", metavar="NAME")
    password_file: Path | None = setting(
        None, help="File with the password of mail.user.", parse=parse_path, metavar="FILE"
    )
    sender: str = setting(
        "slurmscope@localhost", help="Sender address of mails.", parse=parse_mail_address, metavar="ADDRESS"
    )
    domain: str = setting(
        "",
        help="Domain appended to user names for mail addresses; empty sends to the bare user name.",
        parse=parse_domain,
        metavar="DOMAIN",
    )
    timeout: float = setting(
        20.0, help="Timeout for the SMTP server.", parse=parse_positive_seconds, metavar="DURATION"
    )
    portal_url: str = setting("", help="URL of the portal, for links in mails and reports.", metavar="URL")


def command_sections() -> Iterator[Section]:
    """Yield the settings of commands that show reports: also those of a portal, or of a recorder on this host."""
    yield Section(name="portal", type=ClientSettings)
    yield from report_sections()
    yield Section(name="recorder", type=RecorderSettings)


def report_sections() -> Iterator[Section]:
    """Yield the settings of reports, mails and digests."""
    yield Section(name="slurm", type=SlurmSettings)
    yield Section(name="accounting", type=AccountingSettings)
    yield Section(name="prometheus", type=PrometheusSettings)
    yield Section(name="archive", type=ArchiveSettings)
    yield Section(name="mail", type=MailSettings)
    yield Section(name="log", type=LogSettings)
    yield from rule_sections()
