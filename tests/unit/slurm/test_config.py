# SPDX-License-Identifier: Apache-2.0
"""Slurm's configuration tells what may be shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.cluster.slurm import COLLECTOR
from slurmscope.core.errors import MalformedAnswer
from slurmscope.exporter.collector import NoOptions
from slurmscope.slurm.config import ControllerConfig, parse_config

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "slurm-22.05" / "scontrol-config.txt"


def test_real_answer_is_read() -> None:
    expected = ControllerConfig(
        cluster_name="alpha",
        slurm_version="22.05.8",
        slurm_user="root",
        private_data=frozenset(),
        accounting_storage="slurmdbd",
        process_tracking="cgroup",
    )

    assert expected == parse_config(FIXTURE.read_bytes())


@pytest.mark.parametrize(
    ("words", "hidden"),
    [
        ("none", set()),
        ("jobs", {"user", "username", "user_name", "uid", "jobid", "job_id", "slurm_job"}),
        ("accounts,users", {"user", "username", "user_name", "uid", "jobid", "job_id", "slurm_job", "account"}),
        ("cloud,nodes,usage", set()),
    ],
)
def test_private_data_hides_labels(words: str, hidden: set[str]) -> None:
    assert hidden == parse_config(f"PrivateData             = {words}\n".encode()).hidden_labels


def test_answer_without_private_data_is_no_answer() -> None:
    with pytest.raises(MalformedAnswer):
        parse_config(b"ClusterName = x\n")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_rejected(answer: bytes) -> None:
    try:
        assert isinstance(parse_config(answer), ControllerConfig)
    except MalformedAnswer:
        assert b"PrivateData" not in answer or b" = " not in answer


def test_cluster_and_release_are_served() -> None:
    config = ControllerConfig(cluster_name="alpha", slurm_version="22.05.8")

    (family,) = COLLECTOR.collect(NoOptions(), config=config)

    assert {("alpha", "22.05.8"): 1} == family.samples


@pytest.mark.parametrize(("shown", "storage"), [("(null)", "none"), ("accounting_storage/none", "none"), ("", "none")])
def test_accounting_that_is_off_is_none(shown: str, storage: str) -> None:
    answer = f"PrivateData             = none\nAccountingStorageType   = {shown}\n".encode()

    assert storage == parse_config(answer).accounting_storage
