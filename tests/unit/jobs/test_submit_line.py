# SPDX-License-Identifier: Apache-2.0
"""Options of a submit line are read up to the script; what comes after belongs to that."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.submit_line import size_request, submit_options


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("sbatch", {}),
        ("sbatch job.sh", {}),
        ("sbatch -n16 -c 4 job.sh", {"ntasks": "16", "cpus-per-task": "4"}),
        ("sbatch --ntasks=16 --cpus-per-task 4 job.sh", {"ntasks": "16", "cpus-per-task": "4"}),
        ("sbatch --mem 8G job.sh --mem=4G -n 3", {"mem": "8G"}),
        ("sbatch --exclusive job.sh -c 4", {"exclusive": ""}),
        ("sbatch -H -n 2 job.sh", {"hold": "", "ntasks": "2"}),
        ("sbatch --mem-per-cpu=2G --wrap=python x.py -n 5", {"mem-per-cpu": "2G", "wrap": "python"}),
        ("sbatch --mem= job.sh", {"mem": ""}),
        ("sbatch -n", {"ntasks": ""}),
        ("sbatch - -n 2", {}),
    ],
)
def test_options_before_the_script_are_read(line: str, expected: dict[str, str]) -> None:
    assert expected == submit_options(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun -N2 -n8 ./solve -c4", "--nodes=2 --ntasks=8"),
        ("/opt/slurm/bin/srun --exact -c 4 --mem 2G ./solve --key=secret", "--cpus-per-task=4 --mem=2G"),
        ("srun --mem-per-cpu=1G ./solve", "--mem-per-cpu=1G"),
        ("srun -G2 --gpus-per-task 1 --gres=gpu:2 ./solve", "--gpus=2 --gpus-per-task=1 --gres=gpu:2"),
        # The line of the job is also that of the step of its script.
        ("sbatch --mem=2G job.sh", ""),
        ("srun", ""),
        ("", ""),
    ],
)
def test_size_that_a_step_requests_itself_is_read_without_its_program(line: str, expected: str) -> None:
    assert expected == size_request(line)


@given(st.text(alphabet=st.sampled_from("-=nc 4xé\t\x00")) | st.text())
def test_any_line_is_read(line: str) -> None:
    assert all(value == "" or value in line for value in submit_options(line).values())


_TABLE = Path(__file__).resolve().parents[2] / "fixtures" / "slurm-options" / "options.tsv"


class SlurmOption(NamedTuple):
    """One option of salloc, sbatch or srun, as Slurm's table of options has it."""

    name: str
    letter: str
    argument: str
    commands: str
    releases: str


OPTIONS = [SlurmOption(*line.split("\t")) for line in _TABLE.read_text().splitlines() if not line.startswith("#")]
"""From slurm_opt.c of every release from 22.05 to 26.05."""


@pytest.mark.parametrize("command", ["sbatch", "srun", "salloc"])
def test_every_option_of_slurm_leaves_the_next_one_alone(command: str) -> None:
    known = [option for option in OPTIONS if command in option.commands.split(",") and option.name != "mem"]
    for option in known:
        for written in (f"--{option.name}", *([f"-{option.letter}"] if option.letter != "-" else [])):
            value = " 7" if option.argument == "required" else ""
            options = submit_options(f"/usr/bin/{command} {written}{value} --mem=4G x.sh --mem=9G")
            assert (2, "4G") == (len(options), options["mem"]), (written, option)
            assert value.strip() in options.values(), (written, option)
            if not value:
                assert "mem" not in submit_options(f"{command} {written} x.sh --mem=9G"), (written, option)
    assert len(known) > 90


def test_option_may_be_abbreviated_where_it_is_unambiguous() -> None:
    assert {"partition": "gpu", "mem": "4G"} == submit_options("sbatch --part gpu --mem=4G x.sh")
    assert {"gres": "gpu:2"} == submit_options("sbatch --gres=gpu:2 x.sh")
    # --ntasks-per may be --ntasks-per-core or --ntasks-per-node.
    assert {"ntasks-per": "2"} == submit_options("sbatch --ntasks-per=2 x.sh")


def test_wait_has_a_value_for_srun_only() -> None:
    assert {"wait": "5", "mem": "4G"} == submit_options("srun -W 5 --mem=4G x")
    assert {"wait": "", "mem": "4G"} == submit_options("sbatch -W --mem=4G x")


def test_option_of_a_plugin_does_not_take_another_option() -> None:
    assert {"site-flag": "", "mem": "4G"} == submit_options("sbatch --site-flag --mem=4G x")
    assert {"site-value": "9", "mem": "4G"} == submit_options("sbatch --site-value 9 --mem=4G x")


def test_short_flags_may_stand_together() -> None:
    assert {"verbose": "", "ntasks": "2", "ntasks-per-node": "3"} == submit_options(
        "sbatch -vvv -n 2 --tasks-per-node=3 -- x"
    )


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        # Slurm 22.05 has this line for both parts.
        (0, {"ntasks": "2", "mem": "4G"}),
        (1, {"ntasks": "1", "time": "1:00"}),
        (2, {}),
        (10**9, {}),
    ],
)
def test_each_part_of_a_heterogeneous_job_has_its_own_options(part: int, expected: dict[str, str]) -> None:
    assert expected == submit_options("sbatch -n2 --mem=4G : -n1 --time 1:00 x.sh : -n9", part)


def test_colon_in_the_arguments_of_a_script_is_no_part() -> None:
    assert {} == submit_options("sbatch -n2 x.sh : -n9", 1)
