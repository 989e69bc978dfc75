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


def test_new_token_is_used_at_once(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    token = TokenFile(path)

    assert "first" == token.read()
    path.write_text("other\n")
    assert "other" == token.read()


def test_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "token")
    with pytest.raises(ServerRefused, match="not a regular file"):
        TokenFile(tmp_path / "token").read()
