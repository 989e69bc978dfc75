# SPDX-License-Identifier: Apache-2.0
"""Push a page of metrics to a Pushgateway.

A gateway keeps a group of metrics until somebody deletes it, and one bad push can make it refuse the
pushes of everybody else. So a page always replaces its whole group, and the labels of the group are
checked here: a value that is no valid UTF-8 never leaves this process.
"""

from __future__ import annotations

import base64
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

from slurmscope.errors import ConfigError, OutputError
from slurmscope.http_client.deadlines import DeadlineSocket, seconds_left
from slurmscope.log import escape

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext


PushResult_T = TypeVar("PushResult_T")

_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
_HOST = re.compile(r"[A-Za-z0-9._:%-]+\Z")
_PREFIX = re.compile(r"[!-~]*\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_GROUP_LINE = b"push_time_seconds{"  # the gateway's own metric: one sample per group, with the group's labels

_FIRST_PAUSE_SECONDS = 0.5
_REFUSAL_LIMIT_BYTES = 4096
_PAGE_LIMIT_BYTES = 256 * 1024 * 1024
_LINE_LIMIT_BYTES = 1024 * 1024


def _random() -> float:
    return int.from_bytes(os.urandom(4), "big") / 2**32


@dataclass(frozen=True, slots=True, kw_only=True)
class PushGateway:
    """Own one group of metrics at a Pushgateway.

    An attempt ends after ``timeout_seconds``, the name lookup apart; the system's resolver sets that
    limit. What may pass is tried again up to ``attempts`` times within ``deadline_seconds``. A ``sleep``
    that returns True, as ``Event.wait`` does at the end of the service, ends the trying.
    """

    url: str = field(repr=False)
    job: str
    grouping: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    timeout_seconds: float = 10.0
    attempts: int = 4
    deadline_seconds: float = 30.0
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False)
    random: Callable[[], float] = field(default=_random, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        """Refuse at the start what could never be pushed."""
        _parse_url(self.url)
        if not self.job:
            raise ConfigError("a push needs a job name that is not empty")
        for name in self.grouping:
            if not _LABEL_NAME.match(name) or name == "job":
                raise ConfigError(f"{escape(name)!r} is not a label that a pushed group can have")

    def put(self, blocks: Iterable[bytes]) -> None:
        """Replace the group by a page in text format 0.0.4."""
        self._ask("PUT", _group_path(self._labels), _ignore, b"".join(blocks))

    def delete(self) -> None:
        """Remove the group; a group that is not there is no error."""
        self._ask("DELETE", _group_path(self._labels), _ignore)

    def groups(self) -> tuple[Mapping[str, str], ...]:
        """List the gateway's groups that have our job and all our labels, whatever else they have.

        The gateway can only tell by its whole page, so this is for a start, not for every interval.
        """
        own = self._labels
        groups = self._ask("GET", "/metrics", _read_groups)
        if "instance" not in own:
            # The gateway shows an empty instance for a group that has none.
            groups = [{name: group[name] for name in group if name != "instance" or group[name]} for group in groups]
        return tuple(group for group in groups if own.items() <= group.items())

    def delete_left_over(self) -> int:
        """Remove every group that an earlier life left under our labels; return how many there were."""
        left_over = self.groups()
        for group in left_over:
            self._ask("DELETE", _group_path(group), _ignore)
        return len(left_over)

    @property
    def _labels(self) -> dict[str, str]:
        return {name: _valid_utf8(value) for name, value in ({**self.grouping, "job": self.job}).items()}

    def _ask(
        self, method: str, path: str, take: Callable[[HTTPResponse], PushResult_T], body: bytes = b""
    ) -> PushResult_T:
        """Send a request until it is answered, and let ``take`` read the answer."""
        address = _parse_url(self.url)
        request = _request(address, method, path, body)
        over_at = self.clock() + self.deadline_seconds
        attempt = 0
        while True:
            attempt += 1
            limit_seconds = min(self.timeout_seconds, max(0.001, over_at - self.clock()))
            try:
                return _exchange(address, request, limit_seconds, take, self.ca_file)
            except _NoAnswer as error:
                # Doubled each time, and scattered: thousands of nodes must not come back in step.
                pause_seconds = _FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * (0.5 + self.random())
                is_last = attempt >= self.attempts or self.clock() + pause_seconds >= over_at
                if is_last or self.sleep(pause_seconds) is True:
                    tried = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                    raise OutputError(f"{method} to {address.shown} failed after {tried}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Address:
    """Tell where a gateway is; ``shown`` carries no password."""

    is_tls: bool
    host: str
    port: int
    prefix: str
    authorization: str = field(repr=False)

    @property
    def host_and_port(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def shown(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.host_and_port}{self.prefix}"


def _parse_url(url: str) -> _Address:
    """Take an address apart; the sentence about a wrong one does not repeat it, it may hold a password."""
    wrong = ConfigError("the address of the Pushgateway is not of the form http://[USER:PASSWORD@]HOST:PORT[/PREFIX]")
    try:
        parts = urlsplit(url)
        host, port, is_tls = parts.hostname or "", parts.port, parts.scheme == "https"
    except ValueError:
        raise wrong from None
    if parts.scheme not in {"http", "https"} or not _HOST.match(host) or not _PREFIX.match(parts.path):
        raise wrong
    if parts.query or parts.fragment or port == 0:
        raise wrong
    user_and_password = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return _Address(
        is_tls=is_tls,
        host=host,
        port=port or (443 if is_tls else 80),
        prefix=parts.path.rstrip("/"),
        authorization=f"Basic {_base64(user_and_password)}" if parts.username is not None else "",
    )


def _group_path(labels: Mapping[str, str]) -> str:
    """Return the path of a group; its job comes first, as the gateway wants it."""
    further = sorted(item for item in labels.items() if item[0] != "job")
    return "/metrics" + "".join(_path_part(name, value) for name, value in [("job", labels["job"]), *further])


def _path_part(name: str, value: str) -> str:
    # An empty segment, a slash or dots would be cleaned out of the path: the gateway would redirect.
    if value in {"", ".", ".."} or "/" in value:
        return f"/{name}@base64/{_base64(value, b'-_') or '='}"
    return f"/{name}/{quote(value, safe='')}"


def _base64(text: str, last_two: bytes = b"+/") -> str:
    return base64.b64encode(text.encode(), last_two).decode("ascii")


def _valid_utf8(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")


def _request(address: _Address, method: str, path: str, body: bytes) -> bytes:
    lines = [
        f"{method} {address.prefix}{path} HTTP/1.1",
        f"Host: {address.host_and_port}",
        "User-Agent: slurmscope",
        "Connection: close",
        f"Content-Length: {len(body)}",
    ]
    if body:
        lines.append("Content-Type: text/plain; version=0.0.4; charset=utf-8")
    if address.authorization:
        lines.append(f"Authorization: {address.authorization}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class _NoAnswer(Exception):
    """Say what went wrong this time but may pass."""


def _exchange(
    address: _Address,
    request: bytes,
    limit_seconds: float,
    take: Callable[[HTTPResponse], PushResult_T],
    ca_file: Path | None,
) -> PushResult_T:
    """Send one request and let ``take`` read the answer; redirects are not followed."""
    from http.client import HTTPException, HTTPResponse  # with ssl below it: 6 MB that only pushing needs

    deadline = time.monotonic() + limit_seconds
    try:
        with _connect(address, deadline, ca_file) as connection:
            _send(connection, request, deadline)
            incoming = cast("socket.socket", DeadlineSocket(connection, deadline))
            with HTTPResponse(incoming, method=request.partition(b" ")[0].decode()) as response:
                response.begin()
                if 200 <= response.status < 300:
                    return take(response)
                words = response.read(_REFUSAL_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except (OSError, HTTPException) as error:
        told = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise _NoAnswer(escape(told, 300)) from error
    answered = f"answered {response.status}: {escape(words or response.reason, 600)}"
    if response.status >= 500:
        raise _NoAnswer(answered)
    raise OutputError(f"{address.shown} {answered}")


def _connect(address: _Address, deadline: float, ca_file: Path | None) -> socket.socket:
    context = _tls_context(ca_file) if address.is_tls else None
    connection = socket.create_connection((address.host, address.port), seconds_left(deadline))
    if context is None:
        return connection
    try:
        connection.settimeout(seconds_left(deadline))
        return context.wrap_socket(connection, server_hostname=address.host)
    except BaseException:
        connection.close()
        raise


def _tls_context(ca_file: Path | None) -> SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise OutputError(escape(f"the CA file {ca_file} cannot be used: {error}")) from error


def _send(connection: socket.socket, request: bytes, deadline: float) -> None:
    connection.settimeout(seconds_left(deadline))
    try:
        connection.sendall(request)
    except (BrokenPipeError, ConnectionResetError):
        # One who has read enough to refuse answers and closes; the answer tells more than the broken pipe.
        return


def _ignore(_response: HTTPResponse) -> None:
    """Leave the body of a good answer alone."""


def _read_groups(response: HTTPResponse) -> list[dict[str, str]]:
    """Read the labels of every group from the gateway's page, line by line: the page may be large."""
    groups = (line.decode("utf-8", "replace") for line in _lines(response) if line.startswith(_GROUP_LINE))
    return [{name: _unescape(value) for name, value in _LABEL.findall(line)} for line in groups]


def _lines(response: HTTPResponse) -> Iterator[bytes]:
    rest, total_bytes = b"", 0
    while block := response.read(64 * 1024):
        total_bytes += len(block)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if total_bytes > _PAGE_LIMIT_BYTES or len(rest) > _LINE_LIMIT_BYTES:
            raise OutputError(f"the gateway's page or a line of it is too long: gave up after {total_bytes} bytes")
    yield rest


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value)
