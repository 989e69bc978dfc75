# SPDX-License-Identifier: Apache-2.0
"""Declare settings.

A module declares its settings as a frozen dataclass whose fields are made by :func:`setting` (or :func:`duration`,
:func:`byte_size` and :func:`choice`, or ``file_path`` and ``folder_path`` of :mod:`slurmscope.core.config`), and names
it in a :class:`Section`. The flag, the key in the file, the environment variable and the line in the documentation are
all derived from that declaration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from slurmscope.core.units import format_duration, format_number, format_size, parse_bytes, parse_positive_seconds

T = TypeVar("T")
Parse = Callable[[object], object]

DURATION = "DURATION"
SIZE = "SIZE"
_FORMATS: Mapping[str, Callable[[float], str]] = {DURATION: format_duration, SIZE: format_size}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Describe one setting.

    ``metavar`` is what the help shows as its value. Numbers of a setting whose metavar is ``DURATION`` or ``SIZE``
    are written with units.
    """

    key: str
    flag: str
    attribute: str
    default: object
    help: str
    parse: Parse
    metavar: str
    environment: tuple[str, ...]
    is_secret: bool
    has_flag: bool

    @property
    def is_boolean(self) -> bool:
        """Return whether the flag takes no value and has a ``--no-`` form."""
        return self.default is True or self.default is False

    @property
    def is_repeatable(self) -> bool:
        """Return whether the flag may be given more than once."""
        return isinstance(self.default, tuple)

    @property
    def has_unit(self) -> bool:
        """Return whether numbers are written with units, as in ``14d`` or ``10GiB``."""
        return self.metavar in _FORMATS

    def format(self, value: object) -> str:
        """Format a value, or one item of a list, as it is written in a file or after the flag."""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int | float):
            return _FORMATS.get(self.metavar, format_number)(value)
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Name a group of settings.

    ``defaults`` overrides defaults of fields for one role. ``flag`` and ``help`` override those of the only
    field of a section, such as the switch of a collector. Without ``has_flags``, its settings are read from the file
    and the environment only.
    """

    name: str
    type: type
    defaults: Mapping[str, object] = field(default_factory=dict)
    flag: str = ""
    help: str = ""
    has_flags: bool = True

    def settings(self) -> Iterator[Setting]:
        """Yield the settings declared by the fields of the dataclass; a field not made by ``setting`` is a constant."""
        for declared in dataclasses.fields(self.type):
            meta = declared.metadata
            if not meta:
                continue
            key = f"{self.name}.{meta.get('key') or declared.name.replace('_', '-')}"
            flag = self.flag or str(meta["flag"]) or key
            default = self.defaults.get(declared.name, declared.default)
            yield Setting(
                key=key,
                flag=flag,
                attribute=declared.name,
                default=default,
                help=self.help or meta["help"],
                parse=meta["parse"] or parser_for(default),
                metavar=meta["metavar"],
                environment=(environment_name(flag), *meta["environment"]),
                is_secret=meta["is_secret"],
                has_flag=self.has_flags,
            )


def setting(  # noqa: PLR0913 - all but the first two are keyword-only
    default: T,
    help: str,
    *,
    parse: Parse | None = None,
    metavar: str = "",
    key: str = "",
    flag: str = "",
    environment: Sequence[str] = (),
    is_secret: bool = False,
) -> T:
    """Declare a field of a settings dataclass.

    ``parse`` converts the value of the file, the environment or the command line and raises ValueError with a
    reason; ``key`` and ``flag`` override the names derived from the field; ``environment`` names further
    variables, known from older tools.
    """
    metadata = {
        "help": help,
        "parse": parse,
        "metavar": metavar,
        "key": key,
        "flag": flag,
        "environment": tuple(environment),
        "is_secret": is_secret,
    }
    return field(default=default, metadata=metadata)


def duration(
    default: float,
    help: str,
    *,
    parse: Parse = parse_positive_seconds,
    key: str = "",
    flag: str = "",
    environment: Sequence[str] = (),
) -> float:
    return setting(default, help, parse=parse, metavar=DURATION, key=key, flag=flag, environment=environment)


def choice(default: str, words: Iterable[str], help: str) -> str:
    return setting(default, help, parse=one_of(*words), metavar="|".join(words))


def byte_size(default: int, help: str, *, least_bytes: int = 1, key: str = "") -> int:
    def parse(given: object) -> int:
        size_bytes = parse_bytes(str(given))
        if size_bytes < least_bytes:
            raise ValueError(f"{given!r} is less than the minimum of {format_size(least_bytes)}")
        return size_bytes

    return setting(default, help, parse=parse, metavar=SIZE, key=key)


def environment_name(flag: str) -> str:
    return "SLURMSCOPE_" + flag.replace(".", "_").replace("-", "_").upper()


def parser_for(default: object) -> Parse:
    for kind, parse in _PARSERS:
        if isinstance(default, kind):
            return parse
    return parse_text


def parse_boolean(given: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.lower() in words:
        return words[given.lower()]
    raise ValueError(f"{given!r} is not a boolean; use true or false")


def parse_count(given: object) -> int:
    """Parse a whole number, 0 or more."""
    try:
        number = int(given) if isinstance(given, str) else given
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**53:
        raise ValueError(f"{given!r} is not a whole number of 0 or more")
    return number


def parse_text(given: object) -> str:
    if not isinstance(given, str) or not given.isprintable():
        raise ValueError(f"{given!r} is not one line of text")
    return given


def parse_list(given: object) -> tuple[str, ...]:
    """Parse a list: repeated flags, a list in the file, or comma-separated values in the environment.

    Empty items are dropped, so an empty value (``--flag=``) is an empty list.
    """
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, list | tuple):
        raise ValueError(f"{given!r} is not a list of strings")
    return tuple(text for text in map(parse_text, items) if text)


def one_of(*words: str) -> Parse:
    """Return a parser that accepts one of these words."""

    def parse(given: object) -> str:
        if given not in words:
            raise ValueError(f"{given!r} is not one of {', '.join(words)}")
        return str(given)

    return parse


_PARSERS: tuple[tuple[type, Parse], ...] = (
    (bool, parse_boolean),
    (int, parse_count),
    (tuple, parse_list),
)
