# SPDX-License-Identifier: Apache-2.0
"""A token comes from its file, and nothing of it into a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmscope.errors import ServerRefused
from slurmscope.http_client.token_file import TokenFile


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"SLURM_JWT=", "empty"),
        (b"hunter2 hunter3", "something else"),
        (b"hunter2\r\nX-Evil: 1", "something else"),
        (b"hunter2\xff", "something else"),
        (b"h" * 16385, "longer than 16384 bytes"),
    ],
)
def test_file_without_a_token_is_a_refusal_that_shows_nothing(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)

    with pytest.raises(ServerRefused, match=message) as caught:
        TokenFile(path).read()

    assert "hunter2" not in str(caught.value)


def test_missing_file_is_a_refusal(tmp_path: Path) -> None:
    with pytest.raises(ServerRefused, match="token cannot be read: No such file"):
        TokenFile(tmp_path / "token").read()


def test_file_is_opened_again_only_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    seen = path.stat()
    token = TokenFile(path)

    assert "first" == token.read()
    path.write_text("other\n")
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert "first" == token.read()
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns + 1))
    assert "other" == token.read()
