# SPDX-License-Identifier: Apache-2.0
"""Hold one group of pushed metrics, and turn it into the content of a file and back.

The content is one line of JSON and the page of the group::

    {"version": 1, "labels": {"job": "backup"}, "pushed_at": 1794801029.5, "failed_at": 0, "ttl_seconds": null}
    # TYPE backup_seconds gauge
    backup_seconds{instance="",job="backup"} 12.5

::

    MetricFamily { string name = 1; string help = 2; MetricType type = 3; repeated Metric metric = 4; }
    Metric       { repeated LabelPair label = 1; Gauge gauge = 2; Counter counter = 3; Summary summary = 4;
                   Untyped untyped = 5; int64 timestamp_ms = 6; Histogram histogram = 7; }
    Summary      { uint64 sample_count = 1; double sample_sum = 2; repeated Quantile quantile = 3; }
    Histogram    { uint64 sample_count = 1; double sample_sum = 2; repeated Bucket bucket = 3; }

Gauge, counter and untyped have their value in field 1; a label pair has name and value, a quantile both numbers, and a
bucket its cumulative count and upper bound, in fields 1 and 2. Exemplars and native buckets are skipped.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import io
import json
import math
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

from slurmscope.core.errors import MalformedAnswer
from slurmscope.http.server.connection import GZIP
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.inbox.pushed import TIMES, PushedFamily, complete, label_family
from slurmscope.metrics.parse import MalformedPage, ParsedFamily, ParsedSample, Type, parse
from slurmscope.metrics.write import Format, spell_number

PREFIXES = ("/metrics/job/", "/metrics/job@base64/")
LABELS_LIMIT = 30

_BASE64 = "@base64"
_ROOT = "/metrics/"
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
# What is not UTF-8 in a path arrives as this character.
_REPLACEMENT = "\ufffd"
_TYPES: dict[float, Type] = {0: Type.COUNTER, 1: Type.GAUGE, 2: Type.SUMMARY, 3: Type.UNKNOWN, 4: Type.HISTOGRAM}
_VALUE_FIELDS = {Type.GAUGE: 2, Type.COUNTER: 3, Type.SUMMARY: 4, Type.UNKNOWN: 5, Type.HISTOGRAM: 7}
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_MAX_LABELS = 100
"""Each bucket repeats the labels of its metric: a megabyte of them would be terabytes as text."""
_VARINT, _DOUBLE, _BLOCK, _SINGLE = 0, 1, 2, 5

Value = int | float | bytes
Message = dict[int, list[Value]]
"""The values of each field, in their order."""


def parse_group_path(path: str, label_length_limit: int) -> dict[str, str]:
    """Return the labels of a group; an empty label is no label.

    The job counts only at the beginning; of a label given twice the last one counts, as in the original.
    """
    words = path.removeprefix(_ROOT).split("/")
    if len(words) % 2 and words[-1] == "":
        words.pop()
    if len(words) % 2:
        raise _bad("The path must be /metrics/job/JOB, then pairs of /LABEL/VALUE.")
    if len(words) > 2 * LABELS_LIMIT:
        raise _bad(f"The path has more than {LABELS_LIMIT} labels.")
    pairs = [_parse_pair(name, value) for name, value in zip(words[::2], words[1::2], strict=True)]
    labels = {name: value for name, value in (*pairs, pairs[0]) if value}
    if pairs[0][0] != "job" or not pairs[0][1]:
        raise _bad("The name of the job is missing.")
    if max(map(len, labels.values())) > label_length_limit:
        raise _bad(f"A label is longer than {label_length_limit} characters.")
    return labels


def is_group_label(name: str) -> bool:
    return _LABEL.match(name) is not None


def _parse_pair(name: str, value: str) -> tuple[str, str]:
    if name.endswith(_BASE64):
        name, value = name.removesuffix(_BASE64), _decoded(value)
    if not is_group_label(name):
        raise _bad(f"{name[:40]!a} cannot be the label of a group.")
    if _REPLACEMENT in value:
        raise _bad("A label is not UTF-8.")
    return name, value


def _decoded(text: str) -> str:
    """Decode the URL-safe alphabet, with or without padding."""
    bare = text.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise _bad(f"{text[:40]!a} is not base64 of UTF-8 text.") from error


def _bad(message: str) -> BadRequest:
    return BadRequest(400, message, "path")


_PROTOBUF = re.compile(r"application/vnd\.google\.protobuf *;(?=.*\bencoding=delimited\b)", re.IGNORECASE)
_GOOD_ESCAPES = {True: re.compile(r"(?:[^\\]|\\[\\n])*+"), False: re.compile(r'(?:[^\\]|\\[\\n"])*+')}
"""What help texts and samples may contain: in both, a backslash begins an escape."""
_HELP = re.compile(r"[ \t]*#[ \t]+HELP[ \t]")
_COMMENT = re.compile(r"[ \t]*#")


def parse_body(request: HttpRequest, *, size_limit_bytes: int, sample_limit: int) -> tuple[ParsedFamily, ...]:
    """Return the families of a push that have samples; raise BadRequest if it is too large or malformed."""
    body = request.body
    if request.headers.get("content-encoding", "").strip().lower() == GZIP:
        body = _decompressed(body, size_limit_bytes)
    try:
        if _PROTOBUF.match(request.headers.get("content-type", "")):
            families = parse_delimited(body, sample_limit=sample_limit)
        else:
            text = body.decode()
            families = tuple(parse(text, Format.TEXT, sample_limit=sample_limit))
            _check_escapes(text)
        return tuple(complete(family) for family in families if family.samples and family.name not in TIMES)
    except UnicodeDecodeError as error:
        raise BadRequest(400, "The body is not UTF-8.", "format") from error
    except MalformedAnswer as error:
        raise BadRequest(400, f"{error}.", "format") from error


def _check_escapes(text: str) -> None:
    """Refuse escapes that the format does not have; Prometheus itself keeps them as they are."""
    if "\\" not in text:
        return
    for number, line in enumerate(text.split("\n"), 1):
        is_help = _HELP.match(line) is not None
        if not (_COMMENT.match(line) and not is_help) and not _GOOD_ESCAPES[is_help].fullmatch(line):
            raise MalformedPage(number, "a backslash begins an unknown escape")


def _decompressed(body: bytes, limit_bytes: int) -> bytes:
    """Decompress one or several members, as ``gzip`` writes them when it appends to a file."""
    try:
        with gzip.open(io.BytesIO(body or b"nothing")) as members:
            plain = members.read(limit_bytes + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise BadRequest(400, "The body is not gzip, is truncated, or something follows it.", "format") from error
    if len(plain) > limit_bytes:
        raise BadRequest(413, f"The decompressed body is larger than {limit_bytes} bytes.", "too_large")
    return plain


VERSION = 1
_UNLIMITED = 1 << 30

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """The families of one group; times are seconds since 1970, 0 means never.

    ``ttl_seconds`` is what the last push requested.
    """

    labels: Mapping[str, str]
    families: Mapping[str, PushedFamily] = field(default_factory=dict)
    pushed_at: float = 0.0
    failed_at: float = 0.0
    ttl_seconds: float | None = None

    @cached_property
    def key(self) -> Key:
        """Return what makes the group differ from others."""
        return key_of(self.labels)

    @cached_property
    def series_count(self) -> int:
        return sum(len(family.samples) for family in self.families.values())

    @cached_property
    def size_bytes(self) -> int:
        return len(self.content())

    def expires_at(self, longest_seconds: float) -> float:
        """Return when the group is too old; a group that was only refused counts from then on. 0 means no limit."""
        ttl_seconds = min(self.ttl_seconds or math.inf, longest_seconds or math.inf)
        return (self.pushed_at or self.failed_at) + ttl_seconds

    def content(self) -> bytes:
        head = {
            "version": VERSION,
            "labels": dict(self.labels),
            "pushed_at": self.pushed_at,
            "failed_at": self.failed_at,
            "ttl_seconds": self.ttl_seconds,
        }
        page = "".join(family.header + family.lines for family in self.families.values())
        return f"{json.dumps(head)}\n{page}".encode()


def key_of(labels: Mapping[str, str]) -> Key:
    return tuple(sorted(labels.items()))


def parse_group(content: bytes) -> Group:
    """Parse the content of a group's file; raise MalformedAnswer if it is not one."""
    head, _, page = content.partition(b"\n")
    try:
        found = json.loads(head)
        if found["version"] != VERSION:
            raise MalformedAnswer(f"its version is {found['version']!r}, not {VERSION}")
        labels = {str(name): str(value) for name, value in found["labels"].items()}
        if not all(map(is_group_label, labels)):
            raise MalformedAnswer("a label of the group is not valid")
        parsed = parse(page.decode(), Format.TEXT)
        families = {family.name: label_family(family, labels, _UNLIMITED) for family in parsed}
        ttl_seconds = found["ttl_seconds"]
        return Group(
            labels=labels,
            families=families,
            pushed_at=_time(found["pushed_at"]),
            failed_at=_time(found["failed_at"]),
            ttl_seconds=None if ttl_seconds is None else _time(ttl_seconds),
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise MalformedAnswer("it is not a file of the push inbox") from error


def _time(found: object) -> float:
    seconds = float(str(found))
    if not math.isfinite(seconds):
        raise ValueError
    return seconds


def parse_delimited(body: bytes, *, sample_limit: int) -> tuple[ParsedFamily, ...]:
    """Return the families of a push; raise MalformedAnswer if it is not one. Of a name given twice the last counts."""
    families: dict[str, ParsedFamily] = {}
    try:
        for message in _messages(body):
            family = _parse_family(_parse_message(message), sample_limit)
            families[family.name] = family
            sample_limit -= len(family.samples)
    except (ValueError, IndexError, struct.error) as error:
        raise MalformedAnswer("the body is not a list of metric families in protobuf, each after its length") from error
    return tuple(families.values())


def _messages(body: bytes) -> Iterator[bytes]:
    position = 0
    while position < len(body):
        size, position = _varint(body, position)
        yield _cut(body, position, size)
        position += size


def _parse_message(data: bytes) -> Message:
    fields: Message = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value: Value
        if tag & 7 == _VARINT:
            value, position = _varint(data, position)
        elif tag & 7 == _DOUBLE:
            (value,) = struct.unpack_from("<d", data, position)
            position += 8
        elif tag & 7 == _BLOCK:
            size, position = _varint(data, position)
            value = _cut(data, position, size)
            position += size
        elif tag & 7 == _SINGLE:
            value = _cut(data, position, 4)
            position += 4
        else:
            raise ValueError("a group, which no message of metrics has")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return a number and the position after it; IndexError if it is cut."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position
    raise ValueError("a number of more than ten bytes")


def _cut(data: bytes, position: int, size: int) -> bytes:
    if position + size > len(data):
        raise ValueError("the message is cut")
    return data[position : position + size]


def _parse_family(fields: Message, sample_limit: int) -> ParsedFamily:
    name, kind = _text(fields, 1), _TYPES.get(_number(fields, 3))
    if kind is None:
        raise ValueError("an unknown type")
    if not _NAME.match(name):
        raise MalformedAnswer(f"{name[:60]!a} is not the name of a metric")
    found = (sample for metric in _blocks(fields, 4) for sample in _parse_metric(name, kind, metric))
    samples = tuple(islice(found, sample_limit + 1))
    if len(samples) > sample_limit:
        raise MalformedAnswer("the push has too many samples")
    return ParsedFamily(name=name, type=kind, help=_text(fields, 2), unit="", samples=samples)


def _parse_metric(name: str, kind: Type, fields: Message) -> Iterator[ParsedSample]:
    labels = _parse_labels(name, _blocks(fields, 1))
    values = list(_blocks(fields, _VALUE_FIELDS[kind]))
    if not values:
        raise MalformedAnswer(f"a metric of {name} has another type than its family")
    seconds = _number(fields, 6) / 1000 if 6 in fields else None
    for suffix, more, number in _flat(kind, values[-1]):
        yield ParsedSample(name + suffix, {**labels, **more}, number, seconds)


def _flat(kind: Type, value: Message) -> Iterator[tuple[str, dict[str, str], float]]:
    """Yield suffix, further labels and number of each sample."""
    if kind not in (Type.SUMMARY, Type.HISTOGRAM):
        yield "", {}, _number(value, 1)
        return
    for part in _blocks(value, 3):
        first, second = _number(part, 1), _number(part, 2)
        if kind is Type.SUMMARY:
            yield "", {"quantile": spell_number(first)}, second
        else:
            yield "_bucket", {"le": spell_number(second)}, first
    yield "_sum", {}, _number(value, 2)
    yield "_count", {}, _number(value, 1)


def _parse_labels(metric: str, pairs: Iterable[Message]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for pair in pairs:
        name = _text(pair, 1)
        if not _LABEL.match(name) or name in labels:
            raise MalformedAnswer(f"{metric} has a label that is not valid or given twice")
        labels[name] = _text(pair, 2)
        if len(labels) > _MAX_LABELS:
            raise MalformedAnswer(f"{metric} has more than {_MAX_LABELS} labels")
    return labels


def _blocks(fields: Message, field: int) -> Iterator[Message]:
    for value in fields.get(field, ()):
        if not isinstance(value, bytes):
            raise ValueError("a number where a message is expected")
        yield _parse_message(value)


def _number(fields: Message, field: int) -> float:
    value = fields.get(field, [0])[-1]
    if isinstance(value, bytes):
        raise ValueError("bytes where a number is expected")
    return float(value)


def _text(fields: Message, field: int) -> str:
    value = fields.get(field, [b""])[-1]
    if not isinstance(value, bytes):
        raise ValueError("a number where text is expected")
    return value.decode()
