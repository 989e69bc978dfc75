# SPDX-License-Identifier: Apache-2.0
"""What scontrol prints of licences becomes counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurmscope.cluster.licenses import License, Licenses, parse_licenses
from slurmscope.core.errors import MalformedAnswer

FIXTURES = Path(__file__).parents[2] / "fixtures"
REAL = (FIXTURES / "slurm-22.05" / "scontrol-licenses.txt").read_bytes()
NEWER = (FIXTURES / "slurm-23.02" / "scontrol-licenses.hand-made.txt").read_bytes()


def test_licences_of_a_real_cluster_are_read_whole() -> None:
    assert Licenses(
        licenses=(
            License(name="abaqus@flex1", total=20, used=0, free=20, reserved=0, is_remote=True),
            License(name="matlab", total=10, used=3, free=7, reserved=2, is_remote=False),
        )
    ) == parse_licenses(REAL)


def test_newer_releases_report_what_the_server_said() -> None:
    remote, local, fresh = parse_licenses(NEWER).licenses

    assert (30, 10, 1677602367) == (remote.last_consumed, remote.last_deficit, remote.updated_timestamp)
    assert (None, None, None) == (local.last_consumed, local.last_deficit, local.updated_timestamp)
    assert (0, 0, None) == (fresh.last_consumed, fresh.last_deficit, fresh.updated_timestamp)


def test_older_releases_do_not_report_reserved_licences() -> None:
    answer = b"LicenseName=fluent Total=30 Used=1 Free=29 Remote=no\n"

    assert (License(name="fluent", total=30, used=1, free=29, is_remote=False),) == parse_licenses(answer).licenses


def test_a_licence_may_have_an_odd_name() -> None:
    answer = b"LicenseName=a b=c \xff Total=1 Used=0 Free=1 Reserved=0 Remote=no\n"

    assert "a b=c \udcff" == parse_licenses(answer).licenses[0].name


def test_a_cluster_may_have_no_licences() -> None:
    assert Licenses(licenses=()) == parse_licenses(b"No licenses configured in Slurm.\n")


def test_odd_records_cost_only_themselves() -> None:
    licenses = parse_licenses(b"Welcome!\nLicenseName=x Total=many Used=1 Free=2\n" + REAL)

    assert parse_licenses(REAL).licenses == licenses.licenses
    assert 2 == licenses.unreadable_rows


@pytest.mark.parametrize("answer", [b"", REAL[:-1], b"\n", b"slurm_load_license error\n", b"LicenseName=x\n"])
def test_an_answer_that_is_cut_or_strange_is_no_answer(answer: bytes) -> None:
    with pytest.raises(MalformedAnswer, match="scontrol show licenses"):
        parse_licenses(answer)


_pieces = st.sampled_from(["LicenseName=", "x", " Total=", " Used=", " Free=", " Reserved=", "1", "-1", " ", "\n"])


@settings(deadline=None)
@given(st.binary(max_size=100) | st.lists(_pieces, max_size=30).map(lambda pieces: "".join(pieces).encode()))
def test_any_bytes_are_counted_or_rejected(answer: bytes) -> None:
    try:
        licenses = parse_licenses(answer)
    except MalformedAnswer:
        return
    assert answer.count(b"\n") == licenses.unreadable_rows + len(licenses.licenses)
