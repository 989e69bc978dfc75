# SPDX-License-Identifier: Apache-2.0
"""Check the sources of tracing: owners of jobs, host names of nodes, munge credentials."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.core.errors import CommandMissing, CommandRefused, MalformedAnswer
from slurmscope.slurm import command
from slurmscope.slurm.munge import MungeCredential, decode_credential, parse_credential
from slurmscope.trace.owners import COLUMNS, parse_hosts, parse_owners
from slurmscope.trace.samples import RunningJobOwner
from tests.fakes.slurm_scripts import make_commands

ROW = "4711\x1f1000\x1fada\x1fphysics\x1fRUNNING\x1fn[1-2]\x1f8\x1fcpu=8,mem=16G,node=2,billing=8\n"


def test_owner_nodes_and_allocation_of_a_job() -> None:
    assert ({4711: RunningJobOwner(4711, 1000, "ada", "physics", "RUNNING", "n[1-2]", 8, 16 << 30)}) == parse_owners(
        ROW.encode()
    )


def test_what_is_missing_is_empty() -> None:
    owner = parse_owners(b"1\x1f0\x1froot\x1f(null)\x1fCOMPLETING\x1f(null)\x1f1\x1fN/A\n")[1]
    assert ("", "", None) == (owner.account, owner.node_list, owner.memory_bytes)


def test_bad_row_costs_only_itself() -> None:
    found = parse_owners(f"{ROW}garbage\n1\x1fx\x1fy\n{ROW.replace('4711', '4712')}".encode())
    assert [4711, 4712] == list(found)


def test_cut_answer_is_refused() -> None:
    with pytest.raises(MalformedAnswer):
        parse_owners(ROW.encode()[:-1])
    with pytest.raises(MalformedAnswer):
        parse_hosts(b"n1\x1fmachine")


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n")), max_size=9)))
def test_any_rows_are_parsed_or_skipped(rows: list[list[str]]) -> None:
    text = "".join("\x1f".join(row) + "\n" for row in rows)
    found = parse_owners(text.encode())
    whole = sum(text_row.count("\x1f") == len(COLUMNS) - 1 for text_row in text.split("\n")[:-1])
    assert len(found) <= whole


def test_host_names_are_short_and_by_node() -> None:
    assert {"n1": "machine", "n2": "machine", "n3": "n3"} == parse_hosts(
        b"n1\x1fmachine.example.org\nn2\x1fmachine\nn3\x1fn3\nn3\x1fn3\nbroken\n\x1f\n"
    )


def test_user_and_payload_of_a_credential() -> None:
    assert MungeCredential(1000, b"abc\n\ndef") == parse_credential(b"UID:              1000\n\nabc\n\ndef")
    assert MungeCredential(0, b"") == parse_credential(b"UID:              0\n\n")


@pytest.mark.parametrize("answer", [b"", b"UID: 1000\n", b"UID: ada (1000)\n\nx", b"GID: 5\n\nUID: 1000\n"])
def test_answer_without_a_user_is_refused(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer):
        parse_credential(answer)


@pytest.mark.parametrize(
    "text",
    ["", "MUNGE:", "MUNGE::", "munge:AAAA:", "MUNGE:AAAA: ", "MUNGE:A\n:", "--help", "MUNGE:" + "A" * 5000 + ":"],
)
def test_text_that_is_no_credential_is_refused_without_running_a_program(text: str) -> None:
    assert decode_credential(text, Path("/nonexistent"), {}) is None


def test_absent_munged_is_not_a_bad_credential(tmp_path: Path) -> None:
    with pytest.raises((CommandRefused, CommandMissing)):
        decode_credential("MUNGE:AAAA:", tmp_path / "no-socket", {})


def test_command_reads_what_it_is_given(tmp_path: Path) -> None:
    program = make_commands(tmp_path / "bin", {"copy": "cat"}) / "copy"
    data = bytes(range(256)) * 1000
    output = command.run([str(program)], timeout_seconds=30, environment={"PATH": "/usr/bin:/bin"}, stdin=data)
    assert data == output.stdout


def test_command_without_input_reads_nothing(tmp_path: Path) -> None:
    program = make_commands(tmp_path / "bin", {"copy": "cat"}) / "copy"
    output = command.run([str(program)], timeout_seconds=30, environment={"PATH": "/usr/bin:/bin"})
    assert b"" == output.stdout
