# SPDX-License-Identifier: Apache-2.0
"""Format log records as single lines of valid UTF-8.

::

    time=2026-03-01T08:15:30.250Z level=warn source=services.exporter:88 msg="reading failed" reading=jobs
    {"time":"2026-03-01T08:15:30.250Z","level":"warn","source":"services.exporter:88","msg":"reading failed",...}

Values are passed with the message: ``logger.warning("reading failed", extra=fields("jobs", error=str(error)))``.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TextIO

from slurmscope.core.errors import ConfigError

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
FORMATS = ("logfmt", "json")

_VALUE_LIMIT = 8192
_BARE = re.compile(r"[A-Za-z0-9_./:@%+,-]+\Z")
_NOT_IN_KEY = re.compile(r"[^A-Za-z0-9_.-]")
_OWN_KEYS = frozenset({"time", "level", "source", "msg", "error", "traceback"})


def configure(level: str, format: str, stream: TextIO) -> None:
    """Write every log record to the stream, one line each; a second call replaces the first."""
    if level not in LEVELS:
        raise ConfigError(f"log level {escape(level)!r} is unknown; use one of {', '.join(LEVELS)}")
    if format not in FORMATS:
        raise ConfigError(f"log format {escape(format)!r} is unknown; use one of {', '.join(FORMATS)}")
    # A service started under a Latin-1 locale would otherwise write bytes that are not UTF-8.
    if (reconfigure := getattr(stream, "reconfigure", None)) is not None:
        reconfigure(encoding="utf-8", errors="backslashreplace")
    root = logging.getLogger()
    for old in [handler for handler in root.handlers if isinstance(handler.formatter, LineFormatter)]:
        root.removeHandler(old)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(format))
    handler.addFilter(RepeatFilter().is_wanted)
    root.addHandler(handler)
    root.setLevel(LEVELS[level])


def fields(key: str = "", /, **values: object) -> dict[str, object]:
    """Return the ``extra`` argument of a logging call.

    When repeated records are suppressed, only ``key`` distinguishes records with the same message. It must come
    from a small set, such as names of commands or collectors, never from user input.
    """
    return {"fields": values, "repeat_key": key}


def escape(text: str, limit: int = _VALUE_LIMIT) -> str:
    """Make text safe to show in one line: escape unprintable characters and truncate long text.

    Escaping is idempotent, so it cannot be reversed.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _spell(char) for char in text)


class LineFormatter(logging.Formatter):
    """Format a record as one line of logfmt or JSON."""

    def __init__(self, format: str) -> None:
        super().__init__()
        self._is_json = format == "json"

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, without a line break."""
        if self._is_json:
            return "{" + ",".join(f"{_quote(key)}:{_scalar(value)}" for key, value in self._pairs(record)) + "}"
        return " ".join(f"{key}={_bare(_scalar(value))}" for key, value in self._pairs(record))

    def _pairs(self, record: logging.LogRecord) -> Iterator[tuple[str, object]]:
        yield "time", _timestamp(record.created)
        yield "level", _level_name(record.levelno)
        yield "source", f"{record.name.removeprefix('slurmscope.')}:{record.lineno}"
        yield "msg", record.getMessage()
        for key, value in getattr(record, "fields", {}).items():
            plain = _NOT_IN_KEY.sub("_", key) or "_"
            yield (f"{plain}_" if plain in _OWN_KEYS - {"error"} else plain), value
        if record.exc_info and record.exc_info[0] is not None:
            if "error" not in getattr(record, "fields", {}):
                yield "error", f"{record.exc_info[0].__name__}: {record.exc_info[1]}"
            yield "traceback", self.formatException(record.exc_info)


@dataclass(slots=True, kw_only=True)
class _Repeated:
    """Count suppressed records of one message, without keeping the record with its arguments and stack frames."""

    name: str
    level: int
    line: int
    message: str
    key: str
    until_seconds: float
    count: int = 0


class RepeatFilter:
    """Log a repeated warning or error once per period, then log how often it was repeated.

    Records are equal if logger, message template, exception type and key are equal. At most ``limit`` different
    ones are remembered; the oldest is dropped first. Thread-safe.
    """

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, period_seconds: float = 3600.0, limit: int = 1000
    ) -> None:
        self._clock = clock
        self._period_seconds = period_seconds
        self._limit = limit
        self._seen: OrderedDict[tuple[str, ...], _Repeated] = OrderedDict()
        self._lock = threading.Lock()

    def is_wanted(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record; log summaries that are due first."""
        if getattr(record, "is_repeat_summary", False):
            return True
        with self._lock:
            due = self._take_expired()
            is_wanted = record.levelno < logging.WARNING or self._is_new(record, due)
        for repeated in due:
            if repeated.count:
                logging.getLogger(repeated.name).handle(_summary(repeated))
        return is_wanted

    def _take_expired(self) -> list[_Repeated]:
        now, expired = self._clock(), list[_Repeated]()
        # All entries expire after the same time, so the first one is always the next.
        while self._seen and next(iter(self._seen.values())).until_seconds <= now:
            expired.append(self._seen.popitem(last=False)[1])
        return expired

    def _is_new(self, record: logging.LogRecord, due: list[_Repeated]) -> bool:
        error = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else ""
        message, key = str(record.msg)[:200], str(getattr(record, "repeat_key", ""))[:200]
        identity = (record.name, message, error, key)
        if (repeated := self._seen.get(identity)) is not None:
            repeated.count += 1
            return False
        if len(self._seen) >= self._limit:
            due.append(self._seen.popitem(last=False)[1])
        self._seen[identity] = _Repeated(
            name=record.name,
            level=record.levelno,
            line=record.lineno,
            message=message,
            key=key,
            until_seconds=self._clock() + self._period_seconds,
        )
        return True


def _summary(repeated: _Repeated) -> logging.LogRecord:
    return logging.makeLogRecord(
        {
            "name": repeated.name,
            "levelno": repeated.level,
            "levelname": logging.getLevelName(repeated.level),
            "lineno": repeated.line,
            "msg": "message was repeated",
            "fields": {
                "message": repeated.message,
                **({"key": repeated.key} if repeated.key else {}),
                "repeated": repeated.count,
            },
            "is_repeat_summary": True,
        }
    )


def _timestamp(seconds: float) -> str:
    milliseconds = math.floor(seconds * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(milliseconds // 1000)) + f".{milliseconds % 1000:03d}Z"


def _level_name(number: int) -> str:
    return next((name for name, level in reversed(LEVELS.items()) if number >= level), "debug")


def _scalar(value: object) -> str:
    """Format a value as JSON; values that JSON does not know become strings."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)  # the repr of an enumeration is not a number
    if isinstance(value, float) and math.isfinite(value):
        return float.__repr__(value)
    return _quote(str(value))


def _bare(scalar: str) -> str:
    """Remove the quotes of a string that needs none in logfmt."""
    return scalar[1:-1] if scalar.startswith('"') and _BARE.match(scalar[1:-1]) else scalar


def _quote(text: str) -> str:
    """Quote as in JSON; logfmt parsers understand the same escapes."""
    if len(text) > _VALUE_LIMIT:
        text = text[: _VALUE_LIMIT - 1] + "…"
    return '"' + escape(text.replace("\\", "\\\\").replace('"', '\\"'), 2 * _VALUE_LIMIT) + '"'


def _spell(char: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(char)
    if short is not None:
        return short
    # JSON escapes characters beyond 16 bits as surrogate pairs.
    halves = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{halves[i : i + 4]}" for i in range(0, len(halves), 4))
