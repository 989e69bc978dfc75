# SPDX-License-Identifier: Apache-2.0
"""Make texts fit for every database: valid, without NUL, and of bounded length."""

from __future__ import annotations

import hashlib
import re

NAME_LENGTH = 128
CLUSTER_LENGTH = 64
STATE_LENGTH = 32
RULE_LENGTH = 64
SHOWN_LENGTH = 64
TITLE_LENGTH = 512
RULE_SEPARATOR = ","
"""Between the rules of one job."""

_INVALID = re.compile("[\x00\ud800-\udfff]")
_DIGEST_LENGTH = 16


def valid_text(text: str) -> str:
    """Put U+FFFD in the place of what no database takes."""
    return _INVALID.sub("\ufffd", text)


def short_text(text: str, limit: int) -> str:
    """Return a valid text of at most so many characters; what was cut is shown by an ellipsis."""
    text = valid_text(text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def short_name(text: str, limit: int) -> str:
    """Return a valid name of at most so many characters, still different from every other name.

    Who may see a job hangs on the names of users and accounts: two long ones must not become one by cutting.
    """
    name = valid_text(text)
    if name == text and len(text) <= limit:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: limit - _DIGEST_LENGTH - 1]}…{digest}"


def cluster_name(text: str) -> str:
    return short_name(text, CLUSTER_LENGTH)


def person_name(text: str) -> str:
    """Return the name of a user, an account or a partition as the table has it."""
    return short_name(text, NAME_LENGTH)


def state_name(text: str) -> str:
    """Return the state of a job as the table has it."""
    return short_text(text, STATE_LENGTH)


def rule_name(text: str) -> str:
    return short_name(text.replace(RULE_SEPARATOR, " "), RULE_LENGTH)
