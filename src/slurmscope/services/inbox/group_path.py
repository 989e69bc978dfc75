# SPDX-License-Identifier: Apache-2.0
"""Parse the path of a push into the labels of its group: ``/metrics/job/backup/instance/n1``."""

from __future__ import annotations

import base64
import binascii
import re

from slurmscope.outputs.http.request import BadRequest

PREFIXES = ("/metrics/job/", "/metrics/job@base64/")
LABELS_LIMIT = 30

_BASE64 = "@base64"
_ROOT = "/metrics/"
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*\Z")
_OF_SAMPLES = frozenset({"le", "quantile"})
# What is not UTF-8 in a path arrives as this character.
_REPLACEMENT = "\ufffd"


def parse_group_path(path: str, label_length_limit: int) -> dict[str, str]:
    """Return the labels of a group; an empty label is no label.

    The job counts only at the beginning; of a label given twice the last one counts, as in the original.
    """
    words = path.removeprefix(_ROOT).split("/")
    if len(words) % 2 and words[-1] == "":
        words.pop()
    if len(words) % 2:
        raise _bad("The path must be /metrics/job/JOB, then pairs of /LABEL/VALUE.")
    if len(words) > 2 * LABELS_LIMIT:
        raise _bad(f"The path has more than {LABELS_LIMIT} labels.")
    pairs = [_parse_pair(name, value) for name, value in zip(words[::2], words[1::2], strict=True)]
    labels = {name: value for name, value in (*pairs, pairs[0]) if value}
    if pairs[0][0] != "job" or not pairs[0][1]:
        raise _bad("The name of the job is missing.")
    if max(map(len, labels.values())) > label_length_limit:
        raise _bad(f"A label is longer than {label_length_limit} characters.")
    return labels


def is_group_label(name: str) -> bool:
    """Return whether a group can have a label of this name."""
    return _LABEL.match(name) is not None and name not in _OF_SAMPLES


def _parse_pair(name: str, value: str) -> tuple[str, str]:
    if name.endswith(_BASE64):
        name, value = name.removesuffix(_BASE64), _decoded(value)
    if not is_group_label(name):
        raise _bad(f"{name[:40]!a} cannot be the label of a group.")
    if _REPLACEMENT in value:
        raise _bad("A label is not UTF-8.")
    return name, value


def _decoded(text: str) -> str:
    """Decode the URL-safe alphabet, with or without padding."""
    bare = text.rstrip("=")
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise _bad(f"{text[:40]!a} is not base64 of UTF-8 text.") from error


def _bad(message: str) -> BadRequest:
    return BadRequest(400, message, "path")
