# SPDX-License-Identifier: Apache-2.0
"""Declare what can be set.

A module declares its settings as a frozen dataclass whose fields are made by :func:`setting`, and
names it in a :class:`Section`. The flag, the key in the file, the environment variable and the line
in the documentation all follow from that one declaration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")
Parse = Callable[[object], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Describe one thing that can be set."""

    key: str
    flag: str
    attribute: str
    default: object
    help: str
    parse: Parse
    metavar: str
    environment: tuple[str, ...]
    is_secret: bool

    @property
    def is_boolean(self) -> bool:
        """Tell whether the flag stands alone and has a ``--no-`` twin."""
        return self.default is True or self.default is False

    @property
    def is_repeatable(self) -> bool:
        """Tell whether the flag may be given more than once."""
        return isinstance(self.default, tuple)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Name a group of settings.

    ``defaults`` replaces defaults of fields, for one role. ``flag`` and ``help`` are for a section
    of one field whose declaration cannot know them.
    """

    name: str
    type: type
    defaults: Mapping[str, object] = field(default_factory=dict)
    flag: str = ""
    help: str = ""

    def settings(self) -> Iterator[Setting]:
        """Yield the settings that the fields of the dataclass declare."""
        for declared in dataclasses.fields(self.type):
            meta = declared.metadata
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
            )


def setting(  # noqa: PLR0913 - the vocabulary of a declaration, all but the first by keyword
    default: T,
    *,
    help: str,
    parse: Parse | None = None,
    metavar: str = "",
    key: str = "",
    flag: str = "",
    environment: Sequence[str] = (),
    is_secret: bool = False,
) -> T:
    """Declare a field of a settings dataclass.

    ``parse`` takes what the file or the command line gave and raises ValueError with a reason; ``key``
    and ``flag`` replace the names made from the field; ``environment`` names further variables that
    older tools made known.
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


def environment_name(flag: str) -> str:
    """Return the environment variable that belongs to a flag."""
    return "SLURMSCOPE_" + flag.replace(".", "_").replace("-", "_").upper()


def parser_for(default: object) -> Parse:
    """Choose how to read a value from the type of its default."""
    for kind, parse in _PARSERS:
        if isinstance(default, kind):
            return parse
    return parse_text


def parse_boolean(given: object) -> bool:
    """Read true or false."""
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if isinstance(given, bool):
        return given
    if isinstance(given, str) and given.lower() in words:
        return words[given.lower()]
    raise ValueError(f"{given!r} is neither true nor false")


def parse_count(given: object) -> int:
    """Read a whole number, 0 or more."""
    try:
        number = int(given) if isinstance(given, str) else given
    except ValueError:
        number = None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**53:
        raise ValueError(f"{given!r} is not a whole number of 0 or more")
    return number


def parse_text(given: object) -> str:
    """Read one line of text."""
    if not isinstance(given, str) or not given.isprintable():
        raise ValueError(f"{given!r} is not one line of text")
    return given


def parse_list(given: object) -> tuple[str, ...]:
    """Read several texts: repeated flags, a list in the file, or commas in the environment."""
    items = given.split(",") if isinstance(given, str) else given
    if not isinstance(items, list | tuple):
        raise ValueError(f"{given!r} is not a list of texts")
    return tuple(parse_text(item) for item in items)


def one_of(*words: str) -> Parse:
    """Make a parser that accepts a closed set of words."""

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
