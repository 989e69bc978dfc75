# SPDX-License-Identifier: Apache-2.0
"""Check job tokens against an HMAC made by hand, and that no changed token passes."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import ConfigError
from slurmscope.trace.tokens import JobToken, KeyFile, check_token, make_token, parse_keys, read_keys, rotate_keys
from tests.fakes.command_line import run_here

KEY = bytes(range(32))
TOKEN = JobToken(job_id=4711, uid=1000, node="n1.example", expiry_seconds=2_000_000_000)


def test_token_is_an_hmac_of_its_claims() -> None:
    claims = b"sst1/k1/4711/1000/n1.example/2000000000"
    signature = base64.urlsafe_b64encode(hmac.new(KEY, claims, hashlib.sha256).digest()).rstrip(b"=")
    assert (claims + b"/" + signature).decode() == make_token(TOKEN, "k1", KEY)
    assert TOKEN == check_token(make_token(TOKEN, "k1", KEY), {"k1": KEY}, 1_999_999_999)


def test_token_expires() -> None:
    assert check_token(make_token(TOKEN, "k1", KEY), {"k1": KEY}, 2_000_000_000) is None


@given(st.data())
def test_changed_token_is_refused(data: st.DataObject) -> None:
    good = make_token(TOKEN, "k1", KEY)
    position = data.draw(st.integers(0, len(good) - 1))
    changed = good[:position] + data.draw(st.text(max_size=2)) + good[position + data.draw(st.integers(0, 2)) :]
    found = check_token(changed, {"k1": KEY}, 0.0)
    # The last character of the signature holds two spare bits, but it is compared as text.
    assert (found == TOKEN) if changed == good else (found is None)


@pytest.mark.parametrize("node", ["", "a/b", "a b", "ü", "a" * 256])
def test_node_name_that_is_none_cannot_be_signed(node: str) -> None:
    with pytest.raises(ValueError, match="is not a node name"):
        make_token(JobToken(job_id=1, uid=1, node=node, expiry_seconds=1), "k1", KEY)


@pytest.mark.parametrize(
    "text", ["", "# only a comment\n", "k1", f"k1 {'0' * 63}", f"k1 {'0' * 64}\nk1 {'1' * 64}", f"a/b {'0' * 64}"]
)
def test_bad_key_file_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=r"it has no key|is not a new name") as problem:
        parse_keys(text)
    assert "0" * 60 not in str(problem.value)


def test_rotation_keeps_the_key_before_and_no_older_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.key"
    names = [rotate_keys(path) for _ in range(3)]
    keys = read_keys(path)
    assert names[:0:-1] == list(keys)
    assert 0o600 == path.stat().st_mode & 0o777
    assert [path] == list(tmp_path.iterdir())


def test_running_service_notices_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "trace.key"
    rotate_keys(path)
    file = KeyFile(path)
    before = file.sign(TOKEN)
    assert before is not None
    rotate_keys(path)
    after = file.sign(TOKEN)
    assert after is not None
    assert before != after
    assert TOKEN == check_token(before, file.keys(), 0.0) == check_token(after, file.keys(), 0.0)


def test_keys_that_others_can_read_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "trace.key"
    rotate_keys(path)
    file = KeyFile(path)
    path.chmod(0o640)
    assert {} == file.keys()
    assert file.sign(TOKEN) is None
    with pytest.raises(ConfigError, match="chmod 600"):
        KeyFile(path)


def test_absent_or_foreign_key_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"cannot read the key file .*missing: .*; create it with slurmscope trace key"
    ):
        KeyFile(tmp_path / "missing")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\n")
    binary.chmod(0o600)
    with pytest.raises(ConfigError, match="not ASCII"):
        KeyFile(binary)
    with pytest.raises(ConfigError, match=r"cannot write the key file .*; create the folder .*missing"):
        rotate_keys(tmp_path / "missing" / "trace.key")


def test_command_prints_a_token_that_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "trace.key"
    made = run_here("trace", "key", "--trace.key-file", str(path))
    assert (0, "") == (made.returncode, made.stderr)
    printed = run_here("trace", "token", "--job", "5", "--uid", "7", "--node", "n1", "--trace.key-file", str(path))
    found = check_token(printed.stdout.strip(), KeyFile(path).keys(), 0.0)
    assert found is not None
    assert (5, 7, "n1") == (found.job_id, found.uid, found.node)
    bad = run_here("trace", "token", "--job", "5", "--uid", "7", "--node", "a/b", "--trace.key-file", str(path))
    assert (2, "slurmscope: 'a/b' is not a node name\n") == (bad.returncode, bad.stderr)


def test_keys_that_are_there_are_kept_on_request(tmp_path: Path) -> None:
    path = tmp_path / "trace.key"
    arguments = ("trace", "key", "--if-missing", "--trace.key-file", str(path))

    first = run_here(*arguments)
    keys = path.read_text()
    second = run_here(*arguments)

    assert (0, 0, keys) == (first.returncode, second.returncode, path.read_text())
    assert f"{path} has keys already\n" == second.stdout
