# SPDX-License-Identifier: Apache-2.0
"""Declare the settings for queries to Prometheus or a compatible server."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from slurmscope.config import parse_path
from slurmscope.http_client.address import ServerAddress, parse_address
from slurmscope.settings import parse_text, setting
from slurmscope.units import parse_bytes, parse_positive_seconds

_MATCHER = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)=(?:"([^"\\]*)"|([^"]*))\Z')
_USER = re.compile(r"[^:]{0,256}\Z")


def parse_matchers(given: object) -> tuple[tuple[str, str], ...]:
    """Parse labels and their values: repeated flags, a list in the file, or commas in the environment."""
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, list | tuple):
        raise ValueError(f"{given!r} is not a list of LABEL=VALUE")
    return tuple(_parse_matcher(item) for item in items)


def parse_user(given: object) -> str:
    """Parse a user name for basic authentication, which cannot contain a colon."""
    text = parse_text(given)
    if not _USER.match(text):
        raise ValueError(f"{given!r} is not a valid user name: it contains a colon or has more than 256 characters")
    return text


def parse_size(given: object) -> int:
    """Parse a size in bytes, at least 1 KiB."""
    size_bytes = parse_bytes(given) if isinstance(given, str) else given
    if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or not 1024 <= size_bytes <= 2**40:
        raise ValueError(f"{given!r} is not a size of 1K to 1T, such as 64M")
    return size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusSettings:
    """Hold the address of Prometheus and the limits of queries."""

    url: ServerAddress | None = setting(
        None,
        help="Prometheus or VictoriaMetrics that keeps the numbers of jobs: http://HOST[:PORT][/PREFIX], or https.",
        parse=parse_address,
        metavar="URL",
    )
    bearer_token_file: Path | None = setting(
        None,
        help="File with the token to send to Prometheus; it is read for every question, so it may change.",
        parse=parse_path,
        metavar="FILE",
    )
    user: str = setting(
        "",
        help="User name to send to Prometheus, with the password of --prometheus.password-file.",
        parse=parse_user,
        metavar="USER",
    )
    password_file: Path | None = setting(
        None,
        help="File with the password of --prometheus.user; it is read for every question, so it may change.",
        parse=parse_path,
        metavar="FILE",
    )
    ca_file: Path | None = setting(
        None,
        help="File with the authorities that may vouch for Prometheus, instead of the system's.",
        parse=parse_path,
        metavar="FILE",
    )
    timeout: float = setting(
        30.0,
        help="Seconds after which a question to Prometheus is given up.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )
    max_answer_bytes: int = setting(
        64 * 1024 * 1024,
        help="Largest answer of Prometheus; a question whose answer is larger is put again in parts.",
        parse=parse_size,
        metavar="SIZE",
    )
    max_points: int = setting(
        11_000,
        help="Most points per series that are asked for at once; Prometheus itself refuses more than 11000.",
        metavar="N",
    )
    max_questions: int = setting(
        4,
        help="Most questions that Prometheus is asked at the same time.",
        metavar="N",
    )
    retries: int = setting(
        2,
        help="How often a question is put again when Prometheus is not reached or cannot answer at the moment.",
        metavar="N",
    )
    scrape_interval: float = setting(
        15.0,
        help="How often Prometheus scrapes the node agents; no curve has finer steps.",
        parse=parse_positive_seconds,
        metavar="DURATION",
    )
    matchers: tuple[tuple[str, str], ...] = setting(
        (),
        help="Label that every series must have, where several clusters share a Prometheus: cluster=NAME.",
        parse=parse_matchers,
        metavar="LABEL=VALUE",
    )


def _parse_matcher(given: object) -> tuple[str, str]:
    match = _MATCHER.match(parse_text(given).strip())
    if not match:
        raise ValueError(f'{given!r} is not of the form LABEL=VALUE or LABEL="VALUE"')
    return match[1], match[3] if match[2] is None else match[2]
