# SPDX-License-Identifier: Apache-2.0
"""Cut what ``scontrol --oneliner show`` prints into records and fields.

A record is one line of ``Key=value`` pairs. Names that administrators choose may hold blanks and
equal signs, so a name reaches up to the next key that is known to follow; other values are words.
"""

from __future__ import annotations

from slurmscope.core.errors import MalformedAnswer


def split_lines(answer: bytes, subject: str) -> list[str]:
    if not answer.endswith(b"\n"):
        raise MalformedAnswer(f"scontrol show {subject}: the answer is empty or ends in the middle of a line")
    return answer.decode("utf-8", "surrogateescape").split("\n")[:-1]


def cut(line: str, *keys: str) -> list[str]:
    """Return the texts between the keys, which follow each other in this order, and the text after the last.

    Raises ValueError when a key is missing. The first place of each key counts.
    """
    start = f"{keys[0]}="
    if not line.startswith(start):
        raise ValueError(f"the record does not begin with {start}")
    values = []
    rest = line[len(start) :]
    for key in keys[1:]:
        value, found, rest = rest.partition(f" {key}=")
        if not found:
            raise ValueError(f"the record has no {key}")
        values.append(value)
    return [*values, rest]


def words(text: str) -> dict[str, str]:
    """Read ``Key=word Key=word``; a comment, which is free text at the end of newer records, is left out."""
    found: dict[str, str] = {}
    for word in text.partition(" Comment=")[0].split(" "):
        key, _, value = word.partition("=")
        found.setdefault(key, value)
    return found


def parse_whole(text: str | None) -> int | None:
    """Parse an integer; None where it is absent or a word (``N/A``, ``Unknown``)."""
    if text is None or not text.isascii() or not text.isdecimal() or len(text) > 20:
        return None
    return int(text)
