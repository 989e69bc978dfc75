# SPDX-License-Identifier: Apache-2.0
"""Translate the flags of the Lustre throughput exporter that ``slurmscope cluster`` replaces.

They have one dash or two, and a value after ``=`` or as the next argument: ``-promserver http://host:9090 -port 9846``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from urllib.parse import parse_qs, urlsplit

_FLAG = re.compile(r"--?(?P<name>[a-zA-Z]+)(?:=(?P<value>.*))?\Z", re.DOTALL)
_QUERY = re.compile(r"(?P<metric>[a-zA-Z_:][a-zA-Z0-9_:]*)\[(?P<range>[0-9]+[smhd])\]")
_API = "/api/v1/query"


def _from_query_url(setting: str) -> Callable[[str], list[str]]:
    """Return a translation of the address of a whole query: its server, metric and time range."""

    def translate(text: str) -> list[str]:
        try:
            url = urlsplit(text)
        except ValueError:
            return [f"--prometheus.url={text}"]
        server = f"{url.scheme}://{url.netloc}{url.path.removesuffix(_API)}"
        flags = [f"--prometheus.url={server}", "--collector.lustre"]
        if query := _QUERY.search("".join(parse_qs(url.query).get("query", []))):
            flags += [f"--collector.lustre.{setting}={query['metric']}", f"--collector.lustre.range={query['range']}"]
        return flags

    return translate


FLAGS: Mapping[str, Callable[[str], list[str]]] = {
    "promserver": lambda text: [f"--prometheus.url={text}", "--collector.lustre"],
    "timerange": lambda text: [f"--collector.lustre.range={text}"],
    "timeout": lambda text: [f"--prometheus.timeout={text}"],
    "port": lambda text: [f"--web.listen-address=:{text}"],
    "log": lambda text: [f"--log.level={'debug' if text.lower() == 'trace' else text}"],
    "urlReads": _from_query_url("read-metric"),
    "urlWrites": _from_query_url("write-metric"),
}
"""Older flags, with what each becomes."""


def translate_lustre_flags(arguments: Sequence[str]) -> list[str]:
    """Return the arguments in the current spelling; arguments after ``--`` are unchanged."""
    translated: list[str] = []
    waiting = list(arguments)
    while waiting and waiting[0] != "--":
        argument = waiting.pop(0)
        match = _FLAG.match(argument)
        if match is None or match["name"] not in FLAGS or (match["value"] is None and not waiting):
            translated.append(argument)
        else:
            value = match["value"] if match["value"] is not None else waiting.pop(0)
            translated += FLAGS[match["name"]](value)
    return translated + waiting
