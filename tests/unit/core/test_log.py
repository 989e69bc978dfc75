# SPDX-License-Identifier: Apache-2.0
"""Check that a log line is always one line, can be read back, and that storms are held back."""

from __future__ import annotations

import enum
import io
import json
import logging
import re
import sys
import threading
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.core.log import LineFormatter, RepeatFilter, configure, escape, fields

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=300)  # surrogates and controls too
HOSTILE = "a\x1b[31m\n\r\0\x85\u2028\u2029\u202e\ufeff\udc80\U000e0001\"\\=' b"
PAIR = re.compile(r'([A-Za-z0-9_.-]+)=("(?:[^"\\]|\\.)*"|[^ "]*)(?: |\Z)')


def make_record(
    message: str = "it failed", extra: Mapping[str, object] | None = None, *, level: int = logging.WARNING
) -> logging.LogRecord:
    record = logging.LogRecord("slurmscope.slurm.command", level, "/x/command.py", 88, message, None, None)
    record.created = 1772352930.25  # date -u -d @1772352930 says 2026-03-01 08:15:30
    record.__dict__.update(extra or {})
    return record


def read_logfmt(line: str) -> dict[str, str]:
    """Read a line as logfmt readers do: a quoted value is a JSON text."""
    pairs, place = {}, 0
    while place < len(line):
        match = PAIR.match(line, place)
        assert match, line[place:]
        key, value = match.groups()
        assert key not in pairs
        pairs[key] = json.loads(value) if value.startswith('"') else value
        place = match.end()
    return pairs


def joined(text: str) -> str:
    """JSON cannot tell two lone halves of a character from the character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def assert_one_line_of_utf8(line: str) -> None:
    assert [line] == line.splitlines()
    assert line == line.encode("utf-8").decode("utf-8")
    assert line.isprintable()


class TestLines:
    def test_logfmt_line_has_the_usual_parts(self) -> None:
        line = LineFormatter("logfmt").format(make_record(extra=fields(command="squeue", seconds=0.5, jobs=3)))
        assert (
            "time=2026-03-01T08:15:30.250Z level=warn source=slurm.command:88 "
            'msg="it failed" command=squeue seconds=0.5 jobs=3'
        ) == line

    def test_json_line_is_one_object(self) -> None:
        line = LineFormatter("json").format(
            make_record(extra=fields(text=HOSTILE, none=None, yes=True, count=3, ratio=0.5, nan=float("nan")))
        )
        assert_one_line_of_utf8(line)
        assert {
            "time": "2026-03-01T08:15:30.250Z", "level": "warn", "source": "slurm.command:88",
            "msg": "it failed",
            "text": HOSTILE, "none": None, "yes": True, "count": 3, "ratio": 0.5, "nan": "nan",
        } == json.loads(line)  # fmt: skip

    @pytest.mark.parametrize(
        ("level", "name"),
        [
            (logging.DEBUG, "debug"),
            (logging.INFO, "info"),
            (logging.WARNING, "warn"),
            (logging.ERROR, "error"),
            (logging.CRITICAL, "error"),
            (1, "debug"),
        ],
    )
    def test_level_is_named_as_the_flag_names_it(self, level: int, name: str) -> None:
        assert name == read_logfmt(LineFormatter("logfmt").format(make_record(level=level)))["level"]

    def test_exception_and_traceback_stay_in_the_line(self) -> None:
        record = make_record()
        try:
            raise ValueError("two\nlines")
        except ValueError:
            record.exc_info = sys.exc_info()
        line = LineFormatter("logfmt").format(record)
        assert_one_line_of_utf8(line)
        pairs = read_logfmt(line)
        assert "ValueError: two\nlines" == pairs["error"]
        assert pairs["traceback"].startswith("Traceback (most recent call last):\n")

    def test_own_words_for_the_error_are_kept(self) -> None:
        record = make_record(extra=fields(error="no room"))
        record.exc_info = (OSError, OSError(28, "No space left on device"), None)
        assert "no room" == read_logfmt(LineFormatter("logfmt").format(record))["error"]

    def test_field_cannot_pose_as_our_own(self) -> None:
        line = LineFormatter("logfmt").format(make_record(extra=fields(level="error", **{"a b=c": "1", "": "2"})))
        pairs = read_logfmt(line)
        assert ("warn", "error", "1", "2") == (pairs["level"], pairs["level_"], pairs["a_b_c"], pairs["_"])

    def test_enumeration_of_numbers_is_a_number(self) -> None:
        class Colour(enum.IntEnum):
            RED = 1

        assert 1 == json.loads(LineFormatter("json").format(make_record(extra=fields(colour=Colour.RED))))["colour"]

    def test_long_value_is_cut(self) -> None:
        pairs = read_logfmt(LineFormatter("logfmt").format(make_record(extra=fields(text="\\" * 100_000))))
        assert "\\" * 8191 + "…" == pairs["text"]

    @given(message=ANY_TEXT, value=ANY_TEXT)
    def test_any_text_gives_one_line_that_reads_back(self, message: str, value: str) -> None:
        record = make_record(message, fields(value=value))
        for name, read in (("logfmt", read_logfmt), ("json", json.loads)):
            line = LineFormatter(name).format(record)
            assert_one_line_of_utf8(line)
            pairs = read(line)
            assert (joined(message), joined(value)) == (pairs["msg"], pairs["value"])


class TestEscape:
    def test_what_does_not_print_is_spelled_out(self) -> None:
        assert "a\\u001b[31m\\n\\r\\u0000\\u0085\\u2028\\u202e\\udc80" == escape(
            "a\x1b[31m\n\r\0\x85\u2028\u202e\udc80"
        )

    def test_what_prints_stays(self) -> None:
        assert 'naïve "日本" \\' == escape('naïve "日本" \\')

    @given(ANY_TEXT)
    def test_escaping_twice_changes_nothing(self, text: str) -> None:
        assert escape(text).isprintable()
        assert escape(text) == escape(escape(text))

    @given(ANY_TEXT, st.integers(1, 50))
    def test_long_text_is_cut_before_it_is_spelled(self, text: str, limit: int) -> None:
        assert len(escape(text, limit)) <= 12 * limit


class FakeClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


class Lines(logging.Handler):
    """Keep what was written, as read back from logfmt."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.pairs.append(read_logfmt(LineFormatter("logfmt").format(record)))


class TestRepeats:
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def lines(self, clock: FakeClock) -> Lines:
        lines = Lines()
        lines.addFilter(RepeatFilter(clock=clock, period_seconds=3600, limit=3).is_wanted)
        return lines

    @pytest.fixture
    def logger(self, lines: Lines) -> Iterator[logging.Logger]:
        logger = logging.getLogger("slurmscope.test_repeats")
        logger.addHandler(lines)
        logger.propagate = False
        logger.setLevel(logging.INFO)
        yield logger
        logger.removeHandler(lines)
        logger.propagate = True
        logger.setLevel(logging.NOTSET)

    def test_storm_is_written_once_and_counted(self, logger: logging.Logger, lines: Lines, clock: FakeClock) -> None:
        for attempt in range(5):
            logger.error("attempt %d failed", attempt)
            clock.seconds += 60
        assert ["attempt 0 failed"] == [pairs["msg"] for pairs in lines.pairs]
        clock.seconds += 3600
        logger.error("attempt %d failed", 9)
        assert ["attempt 0 failed", "message was repeated", "attempt 9 failed"] == [p["msg"] for p in lines.pairs]
        summary = lines.pairs[1]
        assert ("attempt %d failed", "4", "error") == (summary["message"], summary["repeated"], summary["level"])

    def test_any_later_record_brings_the_summary(self, logger: logging.Logger, lines: Lines, clock: FakeClock) -> None:
        for _ in range(3):
            logger.warning("failed", extra=fields("squeue"))
        clock.seconds += 3600
        logger.info("all is well")
        assert ["failed", "message was repeated", "all is well"] == [pairs["msg"] for pairs in lines.pairs]
        assert ("squeue", "2") == (lines.pairs[1]["key"], lines.pairs[1]["repeated"])

    def test_what_came_once_needs_no_summary(self, logger: logging.Logger, lines: Lines, clock: FakeClock) -> None:
        logger.warning("failed")
        clock.seconds += 3600
        logger.warning("failed")
        assert ["failed", "failed"] == [pairs["msg"] for pairs in lines.pairs]

    def test_keys_and_exception_types_are_told_apart(self, logger: logging.Logger, lines: Lines) -> None:
        for error in (ValueError("a"), ValueError("b"), TypeError("c")):
            logger.warning("failed", exc_info=error)
        logger.warning("failed", extra=fields("squeue", user="alice"))
        logger.warning("failed", extra=fields("squeue", user="bob"))
        assert ["ValueError: a", "TypeError: c", None] == [pairs.get("error") for pairs in lines.pairs]

    def test_information_is_never_held_back(self, logger: logging.Logger, lines: Lines) -> None:
        for _ in range(3):
            logger.info("started")
        assert 3 == len(lines.pairs)

    def test_oldest_is_forgotten_with_its_count(self, logger: logging.Logger, lines: Lines) -> None:
        for key in ("a", "a", "b", "c", "d", "a"):
            logger.warning("failed", extra=fields(key))
        assert [None, None, None, "1", None, None] == [pairs.get("repeated") for pairs in lines.pairs]

    def test_many_threads_lose_no_count(self, logger: logging.Logger, lines: Lines, clock: FakeClock) -> None:
        def storm() -> None:
            for _ in range(50):
                logger.warning("failed")

        threads = [threading.Thread(target=storm) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        clock.seconds += 3600
        logger.warning("other")
        assert [None, "199", None] == [pairs.get("repeated") for pairs in lines.pairs]


class TestConfigure:
    @pytest.fixture(autouse=True)
    def _root_is_put_back(self) -> Iterator[None]:
        root = logging.getLogger()
        handlers, level = list(root.handlers), root.level
        yield
        root.handlers[:] = handlers
        root.setLevel(level)

    def test_second_call_replaces_the_first(self) -> None:
        first, second = io.StringIO(), io.StringIO()
        configure("info", "logfmt", first)
        configure("warn", "json", second)
        logging.getLogger("slurmscope.x").info("quiet")
        logging.getLogger("slurmscope.x").warning("loud")
        assert "" == first.getvalue()
        assert ["loud"] == [json.loads(line)["msg"] for line in second.getvalue().splitlines()]

    def test_latin_1_stream_still_gets_utf_8(self) -> None:
        raw = io.BytesIO()
        with io.TextIOWrapper(raw, encoding="latin-1") as stream:
            configure("info", "logfmt", stream)
            logging.getLogger("slurmscope.x").info("naïve 日本")
            stream.flush()
            assert "naïve 日本" == read_logfmt(raw.getvalue().decode("utf-8").strip())["msg"]
            logging.getLogger().handlers.pop()

    def test_repeated_errors_are_held_back(self) -> None:
        stream = io.StringIO()
        configure("error", "logfmt", stream)
        for _ in range(3):
            logging.getLogger("slurmscope.x").error("down")
        assert 1 == len(stream.getvalue().splitlines())

    @pytest.mark.parametrize(("level", "format"), [("warning", "logfmt"), ("info", "text"), ("\x1b", "json")])
    def test_unknown_word_is_told_with_the_known_ones(self, level: str, format: str) -> None:
        with pytest.raises(ConfigError, match=r"is unknown; use one of (debug, info, warn, error|logfmt, json)$"):
            configure(level, format, io.StringIO())
