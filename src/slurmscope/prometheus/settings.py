# SPDX-License-Identifier: Apache-2.0
"""Declare the settings for queries to Prometheus or a compatible server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from slurmscope.core.config import file_path
from slurmscope.core.settings import duration, parse_list, parse_text, setting
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.credentials import Header, parse_headers

_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)=(?:"([^"\\]*)"|([^"]*))\Z')
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
_USER = re.compile(r"[^:]{0,256}\Z")


class Matcher(NamedTuple):
    """A label that every queried series must have, with its value."""

    label: str
    value: str

    def __str__(self) -> str:
        """Write the matcher as :func:`parse_matchers` reads it."""
        is_bare = self.value == self.value.strip()
        return f"{self.label}={self.value}" if is_bare else f'{self.label}="{self.value}"'


def parse_matchers(given: object) -> tuple[Matcher, ...]:
    """Parse label matchers: repeated flags, a list in the file, or comma-separated values in the environment."""
    return tuple(_parse_matcher(item) for item in parse_list(given))


def parse_label(given: object) -> str:
    """Parse the name of a label; empty means none."""
    text = parse_text(given).strip()
    if text and not _LABEL.match(text):
        raise ValueError(f"{given!r} is not the name of a label")
    return text


def parse_user(given: object) -> str:
    """Parse a user name for basic authentication."""
    text = parse_text(given)
    if not _USER.match(text):
        raise ValueError(f"{given!r} is not a valid user name; use up to 256 characters without a colon")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """The address of Prometheus and the limits of queries."""

    url: ServerAddress | None = setting(
        None,
        "Prometheus or VictoriaMetrics server: http[s]://HOST[:PORT][/PREFIX].",
        parse=parse_address,
        metavar="URL",
    )
    bearer_token_file: Path | None = file_path(
        None, "File with the bearer token for Prometheus; it is read for every query."
    )
    user: str = setting(
        "",
        "User name for basic authentication at Prometheus; needs prometheus.password-file.",
        parse=parse_user,
        metavar="USER",
    )
    password_file: Path | None = file_path(
        None, "File with the password of prometheus.user; it is read for every query."
    )
    headers: tuple[Header, ...] = setting(
        (),
        "HTTP header of every query, such as X-Scope-OrgID=TENANT for Mimir; NAME=@FILE reads the value from a "
        "file for every query; repeatable.",
        parse=parse_headers,
        metavar="NAME=VALUE",
        is_secret=True,
    )
    ca_file: Path | None = file_path(
        None, "File with the CA certificates to verify Prometheus, instead of those of the system."
    )
    cert_file: Path | None = file_path(None, "File with the client certificate for a Prometheus that requires one.")
    key_file: Path | None = file_path(
        None, "File with the key of the client certificate, unless it is in the same file."
    )
    timeout: float = duration(30.0, "Timeout for queries to Prometheus.")
    max_answer_bytes: int = 64 * 1024 * 1024
    """Maximum size of a Prometheus response; larger queries are split."""
    max_points: int = 11_000
    """Maximum number of points per series in one query; Prometheus itself rejects more than 11000."""
    max_queries: int = 4
    """Maximum number of concurrent queries to Prometheus."""
    retries: int = 2
    """Number of retries when Prometheus is unreachable or busy."""
    scrape_interval: float = duration(
        15.0, "Interval at which Prometheus scrapes the node agents; curves have no smaller step."
    )
    matchers: tuple[Matcher, ...] = setting(
        (),
        "Label matcher added to every query, such as site=NAME if sites share a Prometheus; repeatable.",
        parse=parse_matchers,
        metavar="LABEL=VALUE",
    )
    cluster_label: str = setting(
        "",
        "Label with the name of the cluster, as Slurm has it, if clusters share a Prometheus: only series of the "
        "job's own cluster are queried.",
        parse=parse_label,
        metavar="LABEL",
    )

    def matchers_of(self, cluster: str) -> tuple[Matcher, ...]:
        own = (Matcher(self.cluster_label, cluster),) if self.cluster_label else ()
        return (*self.matchers, *own)


def _parse_matcher(given: object) -> Matcher:
    match = _MATCHER.match(parse_text(given).strip())
    if not match:
        raise ValueError(f'{given!r} is not of the form LABEL=VALUE or LABEL="VALUE"')
    return Matcher(match[1], match[3] if match[2] is None else match[2])
