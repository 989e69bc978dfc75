# SPDX-License-Identifier: Apache-2.0
"""Send a page of metrics: to a Pushgateway, or to a file for the textfile collector of node_exporter.

A gateway keeps a group of metrics until it is deleted, and one invalid push can make it reject the pushes of all other
clients. So a page always replaces its whole group, and the labels of the group are checked here: a value that is not
valid UTF-8 is never sent.

The file is replaced atomically: readers, also after a power failure, find the old page or the new one.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from slurmscope.core.errors import ConfigError, MalformedAnswer, OutputError, ServerError
from slurmscope.core.log import escape
from slurmscope.core.rate_limit import backoff_seconds
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.request import AnswerTooLong, ClientRequest, open_response, read_blocks, tls_context

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from ssl import SSLContext


import contextlib
import errno
import os

PushResult_T = TypeVar("PushResult_T")

_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_GROUP_METRIC = "push_time_seconds"  # the gateway's own metric: one sample per group, with the group's labels

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.5, 5.0
_ERROR_TEXT_LIMIT_BYTES = 4096
_PAGE_LIMIT_BYTES = 256 * 1024 * 1024
_LINE_LIMIT_BYTES = 1024 * 1024

_PART_SUFFIX = ".part"  # node_exporter reads only names that end in .prom
_MODE = 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class PushGateway:
    """Own one group of metrics at a Pushgateway.

    An attempt ends after ``timeout_seconds``, the name lookup apart, whose limit is set by the system's resolver.
    Temporary failures are retried, up to ``attempts`` attempts within ``deadline_seconds``. A ``sleep`` that returns
    True, as ``Event.wait`` does when the service stops, ends the retries.
    """

    url: str = field(repr=False)
    job: str
    grouping: Mapping[str, str] = field(default_factory=dict)
    ca_file: Path | None = None
    timeout_seconds: float = 10.0
    attempts: int = 4
    deadline_seconds: float = 30.0
    sleep: Callable[[float], object] = field(default=time.sleep, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        """Reject settings with which no push could succeed."""
        _parse_url(self.url)
        if not self.job:
            raise ConfigError("the job name of a push must not be empty")
        for name in self.grouping:
            if not _LABEL_NAME.match(name) or name == "job":
                raise ConfigError(f"{escape(name)!r} is not a valid grouping label for a push")

    def put(self, blocks: Iterable[bytes]) -> None:
        """Replace the group with a page in text format 0.0.4."""
        self._send("PUT", _group_path(self._labels), _ignore, b"".join(blocks))

    def delete(self) -> None:
        """Delete the group; a group that does not exist is not an error."""
        self._send("DELETE", _group_path(self._labels), _ignore)

    def groups(self) -> tuple[Mapping[str, str], ...]:
        """Return the labels of the gateway's groups that have our job and all our labels, and possibly more.

        The gateway lists its groups only on its complete page, so call this once at startup, not at every interval.
        """
        own = self._labels
        groups = self.labels_of(_GROUP_METRIC)
        if "instance" not in own:
            # The gateway shows an empty instance for a group that has none.
            groups = [{name: group[name] for name in group if name != "instance" or group[name]} for group in groups]
        return tuple(group for group in groups if own.items() <= group.items())

    def labels_of(self, metric: str) -> list[dict[str, str]]:
        """Return the labels of every sample of a metric on the gateway's complete page, of all groups."""
        return self._send("GET", "/metrics", lambda response: _read_labels(response, f"{metric}{{".encode()))

    def delete_left_over(self) -> int:
        """Delete every group that an earlier process left under our labels; return the number of groups."""
        left_over = self.groups()
        for group in left_over:
            self._send("DELETE", _group_path(group), _ignore)
        return len(left_over)

    @property
    def _labels(self) -> dict[str, str]:
        return {name: _valid_utf8(value) for name, value in ({**self.grouping, "job": self.job}).items()}

    def _send(
        self, method: str, path: str, read_body: Callable[[HTTPResponse], PushResult_T], body: bytes = b""
    ) -> PushResult_T:
        """Send a request, with retries, and return what ``read_body`` makes of a successful response."""
        target = _parse_url(self.url)
        request = ClientRequest(method=method, path=path, headers=_headers(target, body), body=body)
        over_at = self.clock() + self.deadline_seconds
        attempt = 0
        while True:
            attempt += 1
            limit_seconds = min(self.timeout_seconds, max(0.001, over_at - self.clock()))
            try:
                return _exchange(target.address, request, limit_seconds, read_body, self.ca_file)
            except _TemporaryFailure as error:
                pause_seconds = backoff_seconds(attempt, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
                is_last = attempt >= self.attempts or self.clock() + pause_seconds >= over_at
                if is_last or self.sleep(pause_seconds) is True:
                    tried = "1 attempt" if attempt == 1 else f"{attempt} attempts"
                    raise OutputError(f"{method} failed after {tried}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _PushTarget:
    """The address of a gateway, and the credentials apart from it so that messages never show them."""

    address: ServerAddress
    authorization: str = field(repr=False)


def _parse_url(url: str) -> _PushTarget:
    """Parse the URL of a gateway; the error does not repeat the URL, which may contain a password."""
    wrong = ConfigError("the URL of the Pushgateway is not of the form http://[USER:PASSWORD@]HOST:PORT[/PREFIX]")
    try:
        parts = urlsplit(url)
        address = parse_address(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))
    except ValueError:
        raise wrong from None
    if address.socket_path:
        raise wrong
    user_and_password = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    authorization = f"Basic {_base64(user_and_password)}" if parts.username is not None else ""
    return _PushTarget(address=address, authorization=authorization)


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


def _headers(target: _PushTarget, body: bytes) -> dict[str, str]:
    content_type = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"} if body else {}
    return content_type | ({"Authorization": target.authorization} if target.authorization else {})


class _TemporaryFailure(Exception):
    """Carry the message of a failure that a retry may resolve."""


def _exchange(
    address: ServerAddress,
    request: ClientRequest,
    limit_seconds: float,
    read_body: Callable[[HTTPResponse], PushResult_T],
    ca_file: Path | None,
) -> PushResult_T:
    """Send one request and return what ``read_body`` makes of a successful response."""
    tls = _tls_context(ca_file) if address.is_tls else None
    deadline = time.monotonic() + limit_seconds
    try:
        with open_response(address, request, deadline=deadline, tls=tls) as response:
            if 200 <= response.status < 300:
                return read_body(response)
            text = response.read(_ERROR_TEXT_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except AnswerTooLong as error:
        raise OutputError(f"{address}: {error}") from error
    except (ServerError, MalformedAnswer) as error:
        raise _TemporaryFailure(str(error)) from error
    answered = f"{address} answered {response.status}: {escape(text or response.reason, 600)}"
    if response.status >= 500:
        raise _TemporaryFailure(answered)
    raise OutputError(answered)


def _tls_context(ca_file: Path | None) -> SSLContext:
    try:
        return tls_context(ca_file)
    except ConfigError as error:  # the file may be valid again at the next push
        raise OutputError(str(error)) from error


def _ignore(_response: HTTPResponse) -> None:
    """Leave the body of a successful response unread."""


def _read_labels(response: HTTPResponse, start: bytes) -> list[dict[str, str]]:
    """Return the labels of every sample whose line starts so, parsed line by line: the page may be large."""
    lines = (line.decode("utf-8", "replace") for line in _lines(response) if line.startswith(start))
    return [{name: _unescape(value) for name, value in _LABEL.findall(line)} for line in lines]


def _lines(response: HTTPResponse) -> Iterator[bytes]:
    rest = b""
    for block in read_blocks(response, _PAGE_LIMIT_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield from lines
        if len(rest) > _LINE_LIMIT_BYTES:
            raise OutputError(f"a line of the Pushgateway's page is longer than {_LINE_LIMIT_BYTES} bytes")
    yield rest


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value)


def write_textfile(path: Path, blocks: Iterable[bytes]) -> None:
    """Replace the file with the blocks, or raise and leave it unchanged.

    The page is written to a temporary file, synced to disk and renamed. Exceptions of the blocks pass through after
    the temporary file has been removed.
    """
    part = f".{path.name}.{os.urandom(8).hex()}{_PART_SUFFIX}"
    with _open_folder(path) as folder:
        try:
            _write_part(part, folder, blocks, path)
            with _naming_file("cannot be replaced", path):
                os.rename(part, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=folder)
            raise
        _sync_folder(folder, path)


def remove_stale_parts(path: Path) -> int:
    """Remove temporary files that an earlier, killed process left; return their number.

    Call it once, before the first write: it would also remove the temporary file of a running writer.
    """
    own_part = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{16}" + re.escape(_PART_SUFFIX) + r"\Z")
    removed = 0
    with _open_folder(path) as folder, _naming_file("has leftover temporary files that cannot be removed", path):
        with os.scandir(folder) as entries:
            own_parts = [entry.name for entry in entries if own_part.match(entry.name)]
        for name in own_parts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
                removed += 1
    return removed


@contextlib.contextmanager
def _open_folder(path: Path) -> Iterator[int]:
    """Open the directory, so that the rename stays in it even if its path changes meanwhile."""
    with _naming_file("cannot be written", path):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _write_part(part: str, folder: int, blocks: Iterable[bytes], path: Path) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with _naming_file("cannot be written", path):
        descriptor = os.open(part, flags, 0o600, dir_fd=folder)
    try:
        for block in blocks:
            with _naming_file("cannot be written", path):
                _write_all(descriptor, block)
        with _naming_file("cannot be written", path):
            os.fchmod(descriptor, _MODE)  # independent of the umask, node_exporter must be able to read it
            os.fsync(descriptor)
    finally:
        with _naming_file("cannot be written", path):  # network file systems may report only now that the disk is full
            os.close(descriptor)


def _write_all(descriptor: int, block: bytes) -> None:
    rest = memoryview(block)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _sync_folder(folder: int, path: Path) -> None:
    with _naming_file("is written, but may not survive a power failure", path):
        try:
            os.fsync(folder)
        except OSError as error:
            # Some network and user-space file systems cannot sync a directory.
            if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
                raise


@contextlib.contextmanager
def _naming_file(what: str, path: Path) -> Iterator[None]:
    """Turn an OSError into an OutputError that names the file."""
    try:
        yield
    except OSError as error:
        hint = {
            errno.ENOENT: f"; does the directory {path.parent} exist?",
            errno.ENOSPC: "; free some space, the next write tries again",
            errno.EDQUOT: "; free some space, the next write tries again",
        }.get(error.errno or 0, "")
        raise OutputError(escape(f"{path} {what}: {error.strerror or error}{hint}")) from error
