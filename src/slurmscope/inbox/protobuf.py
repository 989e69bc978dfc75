# SPDX-License-Identifier: Apache-2.0
"""Parse metrics that clients in Go push by default: protobuf messages, each after its length.

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

import re
import struct
from collections.abc import Iterable, Iterator

from slurmscope.core.errors import MalformedAnswer
from slurmscope.metrics.parse import ParsedFamily, ParsedSample, Type
from slurmscope.metrics.write import spell_number

_TYPES = (Type.COUNTER, Type.GAUGE, Type.SUMMARY, Type.UNKNOWN, Type.HISTOGRAM)
_VALUE_FIELDS = {Type.GAUGE: 2, Type.COUNTER: 3, Type.SUMMARY: 4, Type.UNKNOWN: 5, Type.HISTOGRAM: 7}
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
_VARINT, _DOUBLE, _BLOCK, _SINGLE = 0, 1, 2, 5

Value = int | float | bytes
Message = dict[int, list[Value]]
"""The values of each field, in their order."""


def parse_delimited(body: bytes, *, sample_limit: int) -> tuple[ParsedFamily, ...]:
    """Return the families of a push; raise MalformedAnswer if it is not one. Of a name given twice the last counts."""
    families: dict[str, ParsedFamily] = {}
    try:
        for message in _messages(body):
            family = _parse_family(_parse_message(message))
            families[family.name] = family
            sample_limit -= len(family.samples)
            if sample_limit < 0:
                raise MalformedAnswer("the push has too many samples")
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


def _parse_family(fields: Message) -> ParsedFamily:
    name, kind = _text(fields, 1), _TYPES[int(_number(fields, 3))]
    if not _NAME.match(name):
        raise MalformedAnswer(f"{name[:60]!a} is not the name of a metric")
    samples = (sample for metric in _blocks(fields, 4) for sample in _parse_metric(name, kind, metric))
    return ParsedFamily(name=name, type=kind, help=_text(fields, 2), unit="", samples=tuple(samples))


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
