# SPDX-License-Identifier: Apache-2.0
"""Declare the settings of reports, mails and digests."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from slurmscope.accounting.settings import AccountingSettings
from slurmscope.archive.settings import ArchiveSettings
from slurmscope.core.config import EXTENSIONS, Config, file_path
from slurmscope.core.settings import DURATION, SIZE, Parse, Section, choice, parse_text, setting
from slurmscope.core.units import parse_bytes, parse_seconds
from slurmscope.exporter.settings import LogSettings
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.jobs.findings import RULES
from slurmscope.jobs.report import JobReport
from slurmscope.jobs.rule import MIN_RUN, Threshold
from slurmscope.prometheus.settings import PrometheusSettings
from slurmscope.recorder.settings import RecorderSettings
from slurmscope.reports.carbon import EnergySettings
from slurmscope.reports.page_paths import array_path, job_path, shown_cluster
from slurmscope.slurm.command import SlurmSettings


def parse_threshold(given: object) -> float:
    """Parse a number of 0 or more."""
    try:
        number = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else math.nan
    except ValueError:
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{given!r} is not a number of 0 or more")
    return number


def parse_seconds_threshold(given: object) -> float:
    """Parse a number of seconds, or a duration with units."""
    try:
        return parse_seconds(parse_threshold(given))
    except ValueError:
        return parse_seconds(given)


def parse_bytes_threshold(given: object) -> float:
    """Parse a number of bytes, or a size with a unit."""
    try:
        return parse_threshold(given)
    except ValueError:
        return parse_bytes(str(given))


_UNITS: Mapping[str, tuple[Parse, str]] = {
    "seconds": (parse_seconds_threshold, DURATION),
    "bytes": (parse_bytes_threshold, SIZE),
    "ratio": (parse_threshold, "RATIO"),
    "count": (parse_threshold, "COUNT"),
    "per second": (parse_threshold, "NUMBER"),
}
"""Parser and metavar by the unit of a threshold."""


def rule_sections() -> Iterator[Section]:
    yield from _SECTIONS.values()


def rule_section(rule_id: str) -> Section | None:
    """Return the section of one rule, that of all rules for an empty ID; None when it has no thresholds."""
    return _SECTIONS.get(rule_id)


def thresholds_of(config: Config) -> Mapping[str, float]:
    """Return the current value of every threshold, by ``rule.threshold``, or by its name where rules share it."""
    return {
        f"{rule_id}.{declared.attribute}".lstrip("."): _number(config.values[declared.key].value)
        for rule_id, section in _SECTIONS.items()
        for declared in section.settings()
    }


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else math.nan


def _section(rule_id: str, thresholds: Sequence[Threshold]) -> Section:
    declared = [(each.name, float, _declare(each)) for each in thresholds]
    made = dataclasses.make_dataclass(f"{rule_id}_thresholds", declared, frozen=True, kw_only=True)
    return Section(name=f"rules.{rule_id.replace('_', '-')}".rstrip("."), type=made, has_flags=False)


def _declare(threshold: Threshold) -> float:
    parse, metavar = _UNITS[threshold.unit]
    return setting(threshold.default, threshold.help, parse=parse, metavar=metavar)


_SECTIONS: Mapping[str, Section] = {
    "": _section("", (MIN_RUN,)),
    **{rule.id: _section(rule.id, rule.thresholds) for rule in RULES if rule.thresholds},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Which portal to read jobs from, and how to authenticate."""

    url: ServerAddress | None = setting(
        None,
        "Portal to read jobs from, instead of this host's archive and accounting: https://HOST[:PORT][/PREFIX].",
        parse=parse_address,
        metavar="URL",
    )
    token_file: Path = file_path(
        Path("~/.config/slurmscope/token"),
        "File with the portal token of slurmscope report, readable by its owner only; without it, munge is used.",
    )
    token_over_http: bool = setting(
        False, "Send the token to portals on other hosts without TLS, where the network can read it."
    )
    ca_file: Path | None = file_path(None, "CA file that verifies the portal; default is the system's.")
    timeout: float = 20.0
    """Timeout for each request to the portal."""


def is_private(address: ServerAddress) -> bool:
    """Return whether the network cannot read what is sent: TLS, loopback or a unix socket."""
    if address.is_tls or address.socket_path or address.host == "localhost":
        return True
    try:
        return ip_address(address.host).is_loopback
    except ValueError:
        return False


def portal_link(shown_id: str, settings: ClientSettings, *, cluster: str = "") -> str:
    """Return the address of a job's page; empty without a portal that browsers can reach."""
    address = settings.url
    if address is None or address.socket_path:
        return ""
    usual = ":443" if address.is_tls else ":80"
    scheme = "https" if address.is_tls else "http"
    return f"{scheme}://{address.host_and_port.removesuffix(usual)}{address.prefix}{job_path(shown_id, cluster)}"


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
    return _matching(_SERVER, "a server such as localhost:25", given)


def parse_domain(given: object) -> str:
    return _matching(_DOMAIN, "a domain such as example.org", given)


@dataclass(frozen=True, slots=True, kw_only=True)
class MailSettings:
    """SMTP server and addresses for mails."""

    server: str = setting("localhost:25", "SMTP server for mail.", parse=parse_mail_server, metavar="HOST[:PORT]")
    tls: str = choice(
        "none", ("none", "starttls", "tls"), "Encryption of the SMTP connection: none, starttls, or tls (implicit TLS)."
    )
    user: str = setting("", "User name for the SMTP server; empty disables authentication.", metavar="NAME")
    password_file: Path | None = file_path(None, "File with the password of mail.user.")
    sender: str = setting(
        "slurmscope@localhost", "Sender address of mails.", parse=parse_mail_address, metavar="ADDRESS"
    )
    domain: str = setting(
        "",
        "Domain appended to user names for mail addresses; empty sends to the bare user name.",
        parse=parse_domain,
        metavar="DOMAIN",
    )
    timeout: float = 20.0
    """Timeout for the SMTP server."""
    portal_url: str = setting("", "URL of the portal, for links in mails and reports.", metavar="URL")


def link_to(report: JobReport, settings: MailSettings, clusters: Sequence[str] = (), *, chosen: str = "") -> str:
    """Return the address of a job's page in the portal, or an empty text without a portal.

    ``clusters`` are those of the archive: among several, the address names that of the job. It names ``chosen``, the
    cluster that the user chose, in any case.
    """
    record = report.record
    path = job_path(record.shown_id, chosen or shown_cluster(record.cluster, clusters))
    return f"{settings.portal_url.rstrip('/')}{path}" if settings.portal_url else ""


def link_to_array(array_id: str, cluster: str, settings: MailSettings, clusters: Sequence[str] = ()) -> str:
    """Return the address of the page of an array, as :func:`link_to` that of a job."""
    path = array_path(array_id, shown_cluster(cluster, clusters))
    return f"{settings.portal_url.rstrip('/')}{path}" if settings.portal_url else ""


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
    yield Section(name="energy", type=EnergySettings)
    yield Section(name="log", type=LogSettings)
    yield EXTENSIONS
    yield from rule_sections()
