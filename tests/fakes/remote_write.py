# SPDX-License-Identifier: Apache-2.0
"""Play a server of remote write, with decoders written from the specifications of snappy and protobuf."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.fakes.scripted_server import RawRequest, http_answer, read_whole_request, scripted_server

STALE_BITS = 0x7FF0000000000002


class ReceivedSample(NamedTuple):
    """Hold one sample; ``bits`` are those of its value."""

    labels: tuple[tuple[str, str], ...]
    bits: int
    at_ms: int

    @property
    def name(self) -> str:
        """Return the name of the metric."""
        return dict(self.labels)["__name__"]

    @property
    def value(self) -> float:
        """Return the value."""
        (value,) = struct.unpack("<d", struct.pack("<Q", self.bits))
        return float(value)

    @property
    def is_stale(self) -> bool:
        """Return whether this is Prometheus' stale marker."""
        return self.bits == STALE_BITS


def decompress(block: bytes) -> bytes:
    """Decode a block of snappy, and check everything that the format demands."""
    size, place = _varint(block, 0)
    data = bytearray()
    while place < len(block):
        tag = block[place]
        place += 1
        kind, upper = tag & 3, tag >> 2
        if kind == 0:
            further = max(0, upper - 59)
            length = 1 + (int.from_bytes(block[place : place + further], "little") if further else upper)
            place += further
            assert place + length <= len(block)
            data += block[place : place + length]
            place += length
            continue
        width = {1: 1, 2: 2, 3: 4}[kind]
        offset = int.from_bytes(block[place : place + width], "little")
        length = 4 + (upper & 7) if kind == 1 else 1 + upper
        offset |= (tag >> 5) << 8 if kind == 1 else 0
        place += width
        assert 0 < offset <= len(data)
        for _ in range(length):
            data.append(data[-offset])
    assert size == len(data)
    return bytes(data)


def decode_request(body: bytes) -> list[ReceivedSample]:
    """Decode a request; every series has one sample, and its labels are sorted and not empty."""
    samples = []
    for number, series in _fields(decompress(body)):
        assert (1, bytes) == (number, type(series))
        labels: list[tuple[str, str]] = []
        values: list[tuple[int, int]] = []
        for inner, content in _fields(series):
            if inner == 1:
                pair = dict(_fields(content))
                labels.append((pair[1].decode(), pair[2].decode()))
            else:
                sample = dict(_fields(content))
                values.append((sample[1], sample[2]))
        assert labels == sorted(set(labels))
        assert all(value for _, value in labels)
        ((bits, at_ms),) = values
        samples.append(ReceivedSample(tuple(labels), bits, at_ms))
    return samples


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        content: Any
        if key & 7 == 0:
            content, place = _varint(message, place)
        elif key & 7 == 1:
            content, place = int.from_bytes(message[place : place + 8], "little"), place + 8
        else:
            assert key & 7 == 2
            length, place = _varint(message, place)
            content, place = message[place : place + length], place + length
            assert len(content) == length
        yield key >> 3, content


def _varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[place] & 0x7F) << shift
        shift += 7
        place += 1
        if data[place - 1] < 0x80:
            return number, place


@dataclass
class FakeReceiver:
    """Accept samples, after answering with the scripted statuses."""

    answers: list[tuple[int, bytes, str]] = field(default_factory=list)
    """Status, body and a further header of the next answers; then 204."""
    refused_name: str = ""
    """A metric; a request with a sample of it is refused as a whole, as Prometheus does for a duplicate sample."""
    requests: list[RawRequest] = field(default_factory=list)
    accepted: list[list[ReceivedSample]] = field(default_factory=list)
    url: str = ""
    may_answer: threading.Event = field(default_factory=threading.Event)

    def handle(self, connection: socket.socket) -> None:
        """Answer one request."""
        request = read_whole_request(connection)
        self.may_answer.wait(60)
        self.requests.append(request)
        status, text, header = self._next_answer(request)
        if 200 <= status < 300:
            self.accepted.append(decode_request(request.body))
        connection.sendall(http_answer(status, text, *([header] if header else [])))

    def _next_answer(self, request: RawRequest) -> tuple[int, bytes, str]:
        if self.refused_name and any(sample.name == self.refused_name for sample in decode_request(request.body)):
            return 400, b"duplicate sample for timestamp", ""
        return self.answers.pop(0) if self.answers else (204, b"", "")

    @contextlib.contextmanager
    def serving(self) -> Iterator[FakeReceiver]:
        """Serve until the block ends."""
        self.may_answer.set()
        with scripted_server(self.handle) as address:
            self.url = f"{address}/api/v1/write"
            yield self

    @property
    def samples(self) -> list[ReceivedSample]:
        """Return all accepted samples."""
        return [sample for request in list(self.accepted) for sample in request]
