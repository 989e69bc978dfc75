# SPDX-License-Identifier: Apache-2.0
"""Answer the few questions that a look at the host leaves open: from a file, from files of before, or by suggestion."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from slurmscope.core.errors import ConfigError
from slurmscope.init.host import ROLES, FoundHost
from slurmscope.init.toml_edit import Value, read_keys

FOLDER = "/etc/slurmscope"
UNITS = "/etc/systemd/system"
SETTINGS = "settings."

_ALLOWED = re.compile(r"(?m)^IPAddressAllow=(.*)$")
_WORD = re.compile(r"[\w.@+-]{1,256}\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What to set up on this host."""

    roles: tuple[str, ...] = ()
    readers: tuple[str, ...] = ()
    """Addresses and networks that may connect to the node agent; none means all."""
    prometheus_url: str = ""
    portal_url: str = ""
    admins: tuple[str, ...] = ()
    settings: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Further settings by role, which are not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question; ``role`` names the role without which it is not asked."""

    key: str
    text: str
    parse: Callable[[object], Any]
    role: str = ""


def _words(given: object) -> tuple[str, ...]:
    """Take a list of a file, or words that a person typed."""
    words = re.split(r"[\s,]+", given.strip()) if isinstance(given, str) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("write a list of words")
    return tuple(word for word in words if word)


def _roles(given: object) -> tuple[str, ...]:
    names = _words(given)
    if unknown := [name for name in names if name not in ROLES]:
        raise ValueError(f"{unknown[0]!a} is not one of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in names)


def _addresses(given: object) -> tuple[str, ...]:
    addresses = _words(given)
    for address in addresses:
        try:
            ipaddress.ip_network(address)
        except ValueError as error:
            raise ValueError(f"{address!a} is not an IP address or network such as 192.0.2.10 or 2001:db8::/64") from (
                error
            )
    return addresses


def _url(given: object) -> str:
    if not isinstance(given, str) or (given and not re.fullmatch(r"https?://[!-~]{1,500}", given)):
        raise ValueError("write http://HOST:PORT or https://HOST, or nothing")
    return given


def _names(given: object) -> tuple[str, ...]:
    names = _words(given)
    if unusual := [name for name in names if not _WORD.match(name)]:
        raise ValueError(f"{unusual[0]!a} is not a user name")
    return names


QUESTIONS = (
    Question(key="roles", text="Roles of this host: node, cluster, portal", parse=_roles),
    Question(
        key="readers",
        text="IP addresses of Prometheus, which alone may read this node's port (empty: everybody may)",
        parse=_addresses,
        role="node",
    ),
    Question(key="prometheus-url", text="Address of Prometheus", parse=_url, role="portal"),
    Question(key="portal-url", text="Address under which users will open the portal", parse=_url, role="portal"),
    Question(key="admins", text="Users who may see all jobs", parse=_names, role="portal"),
)


def role_file(role: str) -> str:
    return f"{FOLDER}/{role}.toml"


def drop_in(role: str) -> str:
    return f"{UNITS}/slurmscope-{role}.service.d/init.conf"


def suggest(host: FoundHost) -> Answers:
    """Return what earlier files say, or else what was found on this host."""
    portal = read_keys(host.files.get(role_file("portal"), ""), role_file("portal"))
    allowed = _ALLOWED.search(host.files.get(drop_in("node"), ""))
    readers = [word for word in allowed[1].split() if word != "localhost"] if allowed else []
    return Answers(
        roles=_suggest_roles(host),
        readers=tuple(readers),
        prometheus_url=str(portal.get("prometheus.url") or host.prometheus_url),
        portal_url=str(portal.get("mail.portal-url", "")),
        admins=tuple(map(str, portal.get("portal.admins", ()))),
    )


def _suggest_roles(host: FoundHost) -> tuple[str, ...]:
    """Return the roles that are installed or configured; without any, those that fit the daemons of Slurm here."""
    chosen = host.packaged.union(role for role in ROLES if role_file(role) in host.files)
    if not chosen:
        fitting = {"slurmd": "node", "slurmctld": "cluster"}
        chosen = frozenset(role for daemon, role in fitting.items() if daemon in host.slurm.daemons)
    return tuple(role for role in ROLES if role in chosen)


def parse_answers(text: str, name: str, suggested: Answers) -> Answers:
    """Read a file of answers; what it does not name is as suggested. All problems are reported at once."""
    parsers = {question.key: question.parse for question in QUESTIONS}
    found: dict[str, Any] = {}
    settings: dict[str, dict[str, Value]] = {}
    problems = []
    for key, value in read_keys(text, name).items():
        role, _, setting = key.removeprefix(SETTINGS).partition(".")
        if key.startswith(SETTINGS) and role in ROLES and setting and _is_value(value):
            settings.setdefault(role, {})[setting] = cast("Value", value)
        elif key in parsers:
            try:
                found[key] = parsers[key](value)
            except ValueError as error:
                problems.append(f"{name}: {key}: {error}")
        else:
            known = ", ".join([*parsers, *(f"{SETTINGS}{role}.KEY" for role in ROLES)])
            problems.append(f"{name}: unknown key {key!a}; there are {known}")
    if problems:
        raise ConfigError("\n".join(problems))
    return answer(suggested, found, settings)


def _is_value(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return isinstance(value, bool | int | float | str)


def answer(
    suggested: Answers, found: Mapping[str, Any], settings: Mapping[str, Mapping[str, Value]] | None = None
) -> Answers:
    """Return the suggestions with what was answered instead, by key."""
    fields = {name: found.get(name.replace("_", "-"), getattr(suggested, name)) for name in _FIELDS}
    return Answers(**fields, settings=settings or suggested.settings)


_FIELDS = tuple(question.key.replace("-", "_") for question in QUESTIONS)
