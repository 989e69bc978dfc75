# SPDX-License-Identifier: Apache-2.0
"""Carbon intensity by hour: from a file, from a URL that may fail, hang or lie, and a constant for the rest."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slurmscope.core.errors import MalformedAnswer
from slurmscope.reports.carbon import (
    FETCH_SECONDS,
    MAX_BYTES,
    CarbonIntensity,
    EnergySettings,
    Hours,
    open_site,
    parse_hours,
    parse_price,
    parse_pue,
    parse_response,
    parse_url,
)
from tests.fakes.scripted_server import read_whole_request, scripted_server

# 2026-11-19 at 13:00 UTC.
NOON = 1_795_093_200.0
HOUR = int(NOON // 3600)


def test_hours_are_of_a_day_or_of_every_day() -> None:
    hours = parse_hours("# comment\n13 300\n\n2026-11-19T14:00Z,200  # windy\n2026-11-19T16:30+01:00 100\n")

    assert Hours(by_hour={HOUR + 1: 200.0, HOUR + 2: 100.0}, by_hour_of_day={13: 300.0}) == hours
    assert (300.0, 200.0, None) == (hours.find(HOUR - 24), hours.find(HOUR + 1), hours.find(HOUR + 5))


@pytest.mark.parametrize("line", ["24 300", "13", "13 -1", "13 9999", "13 nan", "13 1 2", "yesterday 300", "\x00"])
def test_other_lines_are_refused_by_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not an hour"):
        parse_hours(f"12 300\n{line}\n")


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (b"302", ""),
        (b'{"carbonIntensity": 302}', "carbonIntensity"),
        (b'{"data": [{"intensity": {"actual": 302}}]}', "data.0.intensity.actual"),
    ],
)
def test_response_is_a_number_or_json(body: bytes, key: str) -> None:
    assert Hours(by_hour={HOUR: 302.0}) == parse_response(body, key, HOUR)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b'{"a": "x"}',
        b'{"a": null}',
        b"[]",
        b"1e9",
        b"-1",
        b"NaN",
        b"[" * 9999,
        b"\xff",
        b"9" * 400,
    ],
)
def test_other_responses_are_refused(body: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="returned no carbon intensity"):
        parse_response(body, "a", HOUR)


def test_job_has_the_mean_of_its_hours(tmp_path: Path) -> None:
    path = tmp_path / "grid.txt"
    path.write_text("2026-11-19T13:00Z 100\n2026-11-19T14:00Z 200\n")
    settings = EnergySettings(carbon_file=path)
    of_file, with_rest = CarbonIntensity(settings), CarbonIntensity(replace(settings, carbon=600.0))

    assert 150.0 == pytest.approx(of_file.mean(NOON, NOON + 7200))
    # Of an hour that it ran in for a quarter, a quarter counts.
    assert 120.0 == pytest.approx(of_file.mean(NOON, NOON + 4500))
    assert 100.0 == pytest.approx(of_file.mean(NOON + 60, NOON + 60))
    # Four hours, of which the file has two: enough. A minute more is not.
    assert 150.0 == pytest.approx(of_file.mean(NOON, NOON + 4 * 3600))
    assert of_file.mean(NOON, NOON + 4 * 3600 + 60) is None
    assert 300.0 == pytest.approx(with_rest.mean(NOON, NOON + 3 * 3600))


def test_file_that_breaks_keeps_its_last_good_numbers(tmp_path: Path) -> None:
    path = tmp_path / "grid.txt"
    path.write_text("13 100\n")
    intensity = CarbonIntensity(EnergySettings(carbon_file=path))
    assert 100.0 == intensity.mean(NOON, NOON)

    path.write_text("what?\n")
    assert 100.0 == intensity.mean(NOON, NOON)
    assert CarbonIntensity(EnergySettings(carbon_file=tmp_path / "none", carbon=7.0)).mean(NOON, NOON) == 7.0


def test_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "grid.txt"
    path.write_bytes(b"13 100\n" + b"#" * MAX_BYTES)
    assert CarbonIntensity(EnergySettings(carbon_file=path)).mean(NOON, NOON) is None


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def wall(self) -> float:
        return NOON + self.now

    def monotonic(self) -> float:
        return self.now


def answering(*answers: bytes, lines: list[str] | None = None) -> Callable[[socket.socket], None]:
    left = iter(answers)

    def handle(connection: socket.socket) -> None:
        request = read_whole_request(connection)
        if lines is not None:
            lines.append(request.line)
        connection.sendall(next(left))

    return handle


def test_url_is_read_once_per_interval_and_its_hours_are_kept() -> None:
    clock, lines = Clock(), list[str]()
    answers = (b"HTTP/1.1 200 OK\r\n\r\n100", b"HTTP/1.1 200 OK\r\n\r\n300", b"HTTP/1.1 500 X\r\n\r\n")
    with scripted_server(answering(*answers, lines=lines)) as address:
        settings = EnergySettings(carbon_url=parse_url(f"{address}/v3/latest?zone=DE"))
        intensity = CarbonIntensity(settings, wall_clock=clock.wall, clock=clock.monotonic)

        assert [100.0, 100.0] == [intensity.mean(NOON, NOON + 10) for _ in range(2)]
        clock.now = max(3600.0, FETCH_SECONDS + 1)
        assert 200.0 == pytest.approx(intensity.mean(NOON, NOON + 7200))
        clock.now *= 2
        # The server fails: what it said of earlier hours stays, and nothing is known of this one.
        assert 200.0 == pytest.approx(intensity.mean(NOON, NOON + 7200))
        assert intensity.mean(NOON + 7200, NOON + 7200) is None
        assert ["GET /v3/latest?zone=DE HTTP/1.1"] * 3 == lines


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n\r\n" + b"9" * (MAX_BYTES + 1),
        b"HTTP/1.1 200 OK\r\n\r\n" + b"9" * 400,
        b"garbage\r\n\r\n",
        b"",
    ],
    ids=["too large", "too large a number", "garbage", "nothing"],
)
def test_server_that_lies_affects_its_own_number(answer: bytes) -> None:
    with scripted_server(answering(answer)) as address:
        settings = EnergySettings(carbon_url=parse_url(address), carbon=7.0)
        assert 7.0 == CarbonIntensity(settings, wall_clock=lambda: NOON).mean(NOON, NOON)


def test_site_without_carbon_has_none() -> None:
    assert open_site(EnergySettings(pue=1.2)).find_intensity is None
    assert open_site(EnergySettings(carbon=0.0)).find_intensity is not None


@pytest.mark.parametrize("text", ["0.9", "11", "", "nan"])
def test_pue_is_at_least_1(text: str) -> None:
    with pytest.raises(ValueError, match=r"from 1 to 10|of 0 or more"):
        parse_pue(text)


@pytest.mark.parametrize(
    ("given", "amount", "currency"),
    [
        ("0.25 USD", 0.25, "USD"),
        ("0.25", 0.25, "EUR"),
        (0.25, 0.25, "EUR"),
        (" 3  CHF ", 3.0, "CHF"),
        ("0", 0.0, "EUR"),
    ],
)
def test_price_may_name_its_currency(given: object, amount: float, currency: str) -> None:
    price = parse_price(given)
    settings = EnergySettings(price=price)

    assert (amount, currency) == (open_site(settings).price_per_kwh, settings.currency)
    assert price == parse_price(str(price))


@pytest.mark.parametrize("given", ["", "USD", "-1", "nan", "0.25 DOLLARSUS", True, [0.25]])
def test_text_that_is_no_price_is_refused(given: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_price(given)
