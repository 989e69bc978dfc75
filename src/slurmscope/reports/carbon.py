# SPDX-License-Identifier: Apache-2.0
"""Find how much carbon dioxide the electricity of the site emitted: one number, or by hour from a file or a URL.

::

    0 312                     # at midnight (UTC) of every day
    2026-11-19T13:00Z 287.5   # in this hour only

A URL may also return one number for now, alone or within JSON, such as ``{"carbonIntensity": 302}``.
"""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from threading import Lock
from urllib.parse import urlsplit

from slurmscope.core.cache import Cache
from slurmscope.core.config import file_path
from slurmscope.core.errors import MalformedAnswer, SlurmscopeError, SourceError
from slurmscope.core.log import fields
from slurmscope.core.settings import parse_text, setting
from slurmscope.core.units import HOUR_SECONDS, format_number
from slurmscope.core.watched_file import Watch, WatchedFile
from slurmscope.http.client.address import ServerAddress, parse_address
from slurmscope.http.client.credentials import Header, parse_headers, read_headers
from slurmscope.http.client.request import ClientRequest, send, tls_context
from slurmscope.jobs.energy import EnergySite

logger = logging.getLogger(__name__)

MAX_BYTES = 1 << 20
MAX_HOURS = 20_000
"""More than two years in a file."""
KEPT_HOURS = 62 * 24
"""Hours that a URL returned are kept for so long."""
MOST_GRAMS = 5_000.0
"""No electricity emits as much per kWh: a higher number has another unit."""
TIMEOUT_SECONDS = 5.0
FETCH_SECONDS = 900.0
KNOWN_SHARE = 0.5
"""A job whose hours are known for less than this has the constant, or nothing."""

_HOUR_OF_DAY = re.compile(r"[0-9]{1,2}\Z")


def parse_amount(given: object) -> float:
    """Parse a number of 0 or more."""
    try:
        number = float(given) if isinstance(given, str | int | float) and not isinstance(given, bool) else math.nan
    except (ValueError, OverflowError):  # the latter for an integer of hundreds of digits
        number = math.nan
    if not 0 <= number < math.inf:
        raise ValueError(f"{str(given)[:40]!r} is not a number of 0 or more")
    return number


def parse_grams(given: object) -> float:
    number = parse_amount(given)
    if number > MOST_GRAMS:
        raise ValueError(f"{given!r} is more than {MOST_GRAMS:,.0f} g/kWh")
    return number


def parse_pue(given: object) -> float:
    number = parse_amount(given)
    if not 1 <= number <= 10:
        raise ValueError(f"{given!r} is not a number from 1 to 10")
    return number


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The price of a kWh."""

    amount: float
    currency: str

    def __str__(self) -> str:
        return f"{format_number(self.amount)} {self.currency}"


def parse_price(given: object) -> Price:
    """Parse an amount, which may be followed by a currency."""
    amount, _, currency = given.strip().partition(" ") if isinstance(given, str) else (given, "", "")
    currency = currency.strip() or "EUR"
    if len(currency) > 8:
        raise ValueError(f"{currency[:40]!r} is not a currency of up to 8 characters")
    return Price(amount=parse_amount(amount), currency=currency)


def parse_url(given: object) -> ServerAddress:
    """Parse the address of a document, which may end with a query."""
    text = parse_text(given)
    address, parts = parse_address(text.partition("?")[0]), urlsplit(text)
    target = f"{parts.path or '/'}?{parts.query}".removesuffix("?")
    if not target.isascii() or any(mark <= " " for mark in target):
        raise ValueError("the URL has blanks or characters that are not ASCII; write them as %20")
    return replace(address, prefix=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySettings:
    """What a kilowatt-hour costs and emits."""

    pue: float = setting(
        1.0,
        "Power usage effectiveness of the data centre: by how much its energy exceeds that of the nodes. Carbon and "
        "cost are multiplied by it.",
        parse=parse_pue,
        metavar="NUMBER",
    )
    price: Price | None = setting(
        None,
        "Price of a kWh, for the cost of jobs, such as 0.25 USD; the currency is EUR unless it is named. Not set: no "
        "cost is shown.",
        parse=parse_price,
        metavar="PRICE",
    )
    carbon: float | None = setting(
        None,
        "Carbon intensity of the electricity, in g CO2e/kWh; not set: no carbon is shown. With a file or URL, it is "
        "for hours that these do not have.",
        parse=parse_grams,
        metavar="GRAMS",
    )
    carbon_file: Path | None = file_path(
        None,
        "File with the carbon intensity by hour: lines of an hour of the day (UTC) or a time such as "
        "2026-11-19T13:00Z, a blank, and g CO2e/kWh.",
    )
    carbon_url: ServerAddress | None = setting(
        None,
        "URL of the current carbon intensity: a number, lines as in energy.carbon-file, or JSON. It is read every "
        "15 minutes while reports are made.",
        parse=parse_url,
        metavar="URL",
    )
    carbon_key: str = setting(
        "carbonIntensity",
        "Where in the JSON of energy.carbon-url the number is: keys and indexes with dots, such as "
        "data.0.intensity.actual.",
        metavar="PATH",
    )
    carbon_headers: tuple[Header, ...] = setting(
        (),
        "HTTP header for energy.carbon-url, such as auth-token=@FILE; repeatable.",
        parse=parse_headers,
        metavar="NAME=VALUE",
        is_secret=True,
    )

    @property
    def currency(self) -> str:
        return "" if self.price is None else self.price.currency


def open_site(settings: EnergySettings) -> EnergySite:
    """Return what energy costs and emits, as configured."""
    has_carbon = settings.carbon is not None or settings.carbon_file or settings.carbon_url
    return EnergySite(
        pue=settings.pue,
        price_per_kwh=None if settings.price is None else settings.price.amount,
        currency=settings.currency,
        find_intensity=CarbonIntensity(settings).mean if has_carbon else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Hours:
    """Carbon intensity by hour since 1970, and by hour of the day (UTC)."""

    by_hour: Mapping[int, float] = field(default_factory=dict)
    by_hour_of_day: Mapping[int, float] = field(default_factory=dict)

    def find(self, hour: int) -> float | None:
        return self.by_hour.get(hour, self.by_hour_of_day.get(hour % 24))


def parse_hours(text: str) -> Hours:
    """Parse lines of an hour and its number; raise ValueError, with the line, for any other text."""
    by_hour: dict[int, float] = {}
    by_hour_of_day: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            hour, grams = words
            if _HOUR_OF_DAY.match(hour) and int(hour) < 24:
                by_hour_of_day[int(hour)] = parse_grams(grams)
            else:
                by_hour[_parse_hour(hour)] = parse_grams(grams)
        except ValueError as error:
            raise ValueError(f"line {number} is not an hour and a number such as 13 287.5: {error}") from None
        if len(by_hour) > MAX_HOURS:
            raise ValueError(f"there are more than {MAX_HOURS:,} hours")
    return Hours(by_hour=by_hour, by_hour_of_day=by_hour_of_day)


def _parse_hour(text: str) -> int:
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() // HOUR_SECONDS)


def parse_response(body: bytes, key: str, now_hour: int) -> Hours:
    """Parse what a URL returned; raise MalformedAnswer if it has no number."""
    text = body.decode("utf-8", "replace").strip()
    try:
        if "\n" in text and not text.startswith(("{", "[")):
            return parse_hours(text)
        found = json.loads(text)
        if isinstance(found, dict | list):
            for word in key.split("."):
                found = found[int(word)] if isinstance(found, list) else found[word]
        return Hours(by_hour={now_hour: parse_grams(found)})
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise MalformedAnswer(f"energy.carbon-url returned no carbon intensity: {str(error)[:200]}") from None


def _seconds_in(hour: int, start_seconds: float, end_seconds: float) -> float:
    """Return how much of an hour lies between two times; a moment has a little of its own hour."""
    end_seconds = max(end_seconds, start_seconds + 1e-3)
    first, last = hour * HOUR_SECONDS, (hour + 1) * HOUR_SECONDS
    return max(0.0, min(end_seconds, last) - max(start_seconds, first))


class CarbonIntensity:
    """The carbon intensity of the site; safe for any thread."""

    def __init__(
        self,
        settings: EnergySettings,
        *,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the settings; the file and the URL are read when the first job needs them."""
        self._settings = settings
        self._wall_clock = wall_clock
        self._file = WatchedFile(self._load)
        self._fetched = Cache[Hours](FETCH_SECONDS, retry_seconds=FETCH_SECONDS, serves_old=True, clock=clock)
        self._kept: dict[int, float] = {}
        self._of_day: Mapping[int, float] = {}
        self._lock = Lock()

    def mean(self, start_seconds: float, end_seconds: float) -> float | None:
        """Return the mean between two times, each hour by its part; that of known hours, if they are at least half."""
        sources = (self._of_file(), self._of_url())
        first, last = int(start_seconds // HOUR_SECONDS), int(end_seconds // HOUR_SECONDS)
        hours = range(first, max(first, last) + 1)[:MAX_HOURS]
        parts = {hour: _seconds_in(hour, start_seconds, end_seconds) for hour in hours}
        found = {hour: next((one for of in sources if (one := of.find(hour)) is not None), None) for hour in hours}
        constant = self._settings.carbon
        known = {hour: constant if grams is None else grams for hour, grams in found.items()}
        numbers = {hour: grams for hour, grams in known.items() if grams is not None and parts[hour]}
        weights = [parts[hour] for hour in numbers]
        is_known = numbers and sum(weights) >= KNOWN_SHARE * sum(parts.values())
        return fmean(numbers.values(), weights) if is_known else None

    def _of_file(self) -> Hours:
        if self._settings.carbon_file is None:
            return Hours()
        try:
            return self._file.get()
        except (OSError, ValueError) as error:
            logger.warning(
                "energy.carbon-file cannot be used",
                extra=fields("carbon file", file=str(self._settings.carbon_file), error=str(error)),
            )
            return self._file.last_good or Hours()

    def _load(self, watch: Watch) -> Hours:
        path = self._settings.carbon_file
        assert path is not None  # noqa: S101 - only called with a file
        watch(path)
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise ValueError(f"the file is larger than {MAX_BYTES:,} bytes")
        return parse_hours(data.decode("utf-8", "replace"))

    def _of_url(self) -> Hours:
        if self._settings.carbon_url is None:
            return Hours()
        try:
            fetched = self._fetched.get("", self._fetch)
        except SlurmscopeError:
            fetched = Hours()
        with self._lock:
            self._kept.update(fetched.by_hour)
            for hour in sorted(self._kept)[:-KEPT_HOURS]:
                del self._kept[hour]
            self._of_day = fetched.by_hour_of_day or self._of_day
            return Hours(by_hour=dict(self._kept), by_hour_of_day=self._of_day)

    def _fetch(self) -> Hours:
        settings = self._settings
        address = settings.carbon_url or ServerAddress()
        try:
            request = ClientRequest(headers=read_headers(settings.carbon_headers))
            answer = send(
                address,
                request,
                deadline=time.monotonic() + TIMEOUT_SECONDS,
                tls=tls_context() if address.is_tls else None,
                limit_bytes=MAX_BYTES,
            )
            if answer.status != 200:
                raise MalformedAnswer(f"energy.carbon-url answered with HTTP status {answer.status}")
            return parse_response(answer.body, settings.carbon_key, int(self._wall_clock() // HOUR_SECONDS))
        except (SourceError, ValueError) as error:
            logger.warning("energy.carbon-url cannot be used", extra=fields("carbon url", error=str(error)))
            raise error if isinstance(error, SourceError) else MalformedAnswer(str(error)) from None
