# SPDX-License-Identifier: Apache-2.0
"""PrivateData of slurm.conf hides series from clients that were not admitted; what is unknown, from other hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurmscope.core.check import Check
from slurmscope.http.server.app import Audience
from slurmscope.slurm.config import ALL_HIDDEN_LABELS, MAX_CONFIG_BYTES, PrivateData

CLUSTER = "ClusterName=alpha\nSlurmctldHost=ctl\n"
OF_JOBS = {"user", "username", "user_name", "uid", "jobid", "job_id", "slurm_job"}
NETWORK, HERE, ADMITTED = Audience.NETWORK, Audience.HERE, Audience.ADMITTED


def with_text(folder: Path, text: str) -> PrivateData:
    (folder / "slurm.conf").write_text(text, encoding="utf-8")
    return PrivateData({"SLURM_CONF": str(folder / "slurm.conf")})


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("", set()),
        ("PrivateData=none", set()),
        ("PrivateData=jobs", OF_JOBS),
        ("  privatedata = USERS,nodes", OF_JOBS),
        ('PrivateData="jobs,accounts"', OF_JOBS | {"account"}),
        ("SlurmUser=slurm PrivateData=accounts # no jobs", {"account"}),
        ("PrivateData=usage,\\\njobs", OF_JOBS),
        ("# PrivateData=jobs", set()),
        ("MyPrivateData=jobs", set()),
        ("PrivateData=none\nPrivateData=jobs", OF_JOBS),
    ],
)
def test_words_of_slurm_conf_hide_labels(tmp_path: Path, text: str, hidden: set[str]) -> None:
    data = with_text(tmp_path, f"{CLUSTER}{text}\n")

    assert hidden == data.hidden_labels(NETWORK)
    assert hidden == data.hidden_labels(HERE), "any user of this machine can connect from it"
    assert not data.hidden_labels(ADMITTED)


def test_included_files_count_too(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/alpha.conf").write_text(f"include {tmp_path}/more.conf\n")
    (tmp_path / "more.conf").write_text("PrivateData=jobs\n")

    assert OF_JOBS == with_text(tmp_path, f"{CLUSTER}Include site/%c.conf\n").hidden_labels(HERE)


@pytest.mark.parametrize(
    "text",
    [
        f"{CLUSTER}Include absent.conf",
        f"{CLUSTER}Include slurm.conf",
        "SlurmUser=slurm",
        "",
        CLUSTER + "#" * MAX_CONFIG_BYTES,
    ],
    ids=["missing include", "endless includes", "no cluster", "empty", "too large"],
)
def test_what_cannot_be_read_is_hidden_from_other_hosts(tmp_path: Path, text: str) -> None:
    data = with_text(tmp_path, text)

    assert ALL_HIDDEN_LABELS == data.hidden_labels(NETWORK)
    assert not data.hidden_labels(HERE)


def test_host_without_slurm_conf_hides_from_other_hosts(tmp_path: Path) -> None:
    assert ALL_HIDDEN_LABELS == PrivateData({}, tmp_path).hidden_labels(NETWORK)


def test_slurm_conf_is_looked_for_where_slurmd_has_it_and_below_the_root(tmp_path: Path) -> None:
    (tmp_path / "run/slurm/conf").mkdir(parents=True)
    (tmp_path / "run/slurm/conf/slurm.conf").write_text(f"{CLUSTER}PrivateData=accounts\n")

    assert {"account"} == PrivateData({}, tmp_path).hidden_labels(NETWORK)


def test_change_is_noticed_and_what_was_known_holds_while_the_file_is_gone(tmp_path: Path) -> None:
    data = with_text(tmp_path, CLUSTER)
    assert not data.hidden_labels(NETWORK)

    (tmp_path / "slurm.conf").write_text(f"{CLUSTER}PrivateData=jobs\n")
    assert OF_JOBS == data.hidden_labels(NETWORK)

    (tmp_path / "slurm.conf").unlink()
    assert OF_JOBS == data.hidden_labels(HERE)


def check(data: PrivateData, *, is_protected: bool = False) -> Check:
    return data.check(are_clients_authenticated=is_protected)


def test_doctor_says_what_is_hidden_and_what_to_do(tmp_path: Path) -> None:
    private = with_text(tmp_path, f"{CLUSTER}PrivateData=jobs,usage\n")
    found = check(private)
    assert (False, "slurm.conf hides jobs, usage: so does the page, since clients are not authenticated") == (
        found.is_good,
        found.message,
    )
    assert "web.config.file" in found.advice
    assert check(private, is_protected=True).is_good

    harmless = with_text(tmp_path, f"{CLUSTER}PrivateData=usage\n")
    assert (True, "slurm.conf hides usage") == (check(harmless).is_good, check(harmless).message)

    unknown = check(PrivateData({"SLURM_CONF": str(tmp_path / "absent")}))
    assert not unknown.is_good
    assert f"not known (there is no {tmp_path}/absent)" in unknown.message
    assert "SLURM_CONF" in unknown.advice
