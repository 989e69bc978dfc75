# SPDX-License-Identifier: Apache-2.0
"""Encode metric families as clients in Go push them: protobuf messages, each after its length.

Numbers of fields are those of ``io.prometheus.client`` (metrics.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping

CONTENT_TYPE = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
COUNTER, GAUGE, SUMMARY, UNTYPED, HISTOGRAM, GAUGE_HISTOGRAM = range(6)
VALUE_FIELDS = {COUNTER: 3, GAUGE: 2, SUMMARY: 4, UNTYPED: 5, HISTOGRAM: 7, GAUGE_HISTOGRAM: 7}


def varint(number: int) -> bytes:
    more = b""
    while number > 0x7F:
        more += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return more + bytes((number,))


def block(field: int, content: bytes | str) -> bytes:
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | 2) + varint(len(data)) + data


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def double(field: int, value: float) -> bytes:
    return varint(field << 3 | 1) + struct.pack("<d", value)


def metric(
    kind: int, value: bytes, labels: Mapping[str, str] | None = None, *, timestamp_ms: int | None = None
) -> bytes:
    pairs = b"".join(block(1, block(1, name) + block(2, text)) for name, text in (labels or {}).items())
    time = b"" if timestamp_ms is None else number(6, timestamp_ms)
    return pairs + block(VALUE_FIELDS[kind], value) + time


def simple(kind: int, value: float, **labels: str) -> bytes:
    return metric(kind, double(1, value), labels)


def histogram(count: int, total: float, buckets: Iterable[tuple[float, int]], **labels: str) -> bytes:
    made = b"".join(block(3, number(1, n) + double(2, bound)) for bound, n in buckets)
    return metric(HISTOGRAM, number(1, count) + double(2, total) + made, labels)


def summary(count: int, total: float, quantiles: Iterable[tuple[float, float]], **labels: str) -> bytes:
    made = b"".join(block(3, double(1, quantile) + double(2, value)) for quantile, value in quantiles)
    return metric(SUMMARY, number(1, count) + double(2, total) + made, labels)


def family(name: str, kind: int | None, *metrics: bytes, help: str = "") -> bytes:
    message = block(1, name) + (block(2, help) if help else b"") + (b"" if kind is None else number(3, kind))
    return delimited(message + b"".join(block(4, one) for one in metrics))


def delimited(message: bytes) -> bytes:
    return varint(len(message)) + message
