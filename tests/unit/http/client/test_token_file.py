# SPDX-License-Identifier: Apache-2.0
"""Check that a token is read from its file and never appears in a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurmscope.core.errors import ServerRefused
from slurmscope.http.client.credentials import TokenFile


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n", "empty"),
        (b"SLURM_JWT=", "empty"),
        (b"hunter2 hunter3", "exactly one token"),
        (b"hunter2\r\nX-Evil: 1", "exactly one token"),
        (b"hunter2\xff", "exactly one token"),
        (b"h" * 16385, "longer than 16384 bytes"),
    ],
)
def test_invalid_token_file_is_reported_without_its_content(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)

    with pytest.raises(ServerRefused, match=message) as caught:
        TokenFile(path).read()

    assert "hunter2" not in str(caught.value)


def test_missing_token_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ServerRefused, match=r"cannot read the token file .*/token: No such file"):
        TokenFile(tmp_path / "token").read()


def test_token_file_is_read_again_only_after_a_change(tmp_path: Path) -> None:
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
