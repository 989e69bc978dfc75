# SPDX-License-Identifier: Apache-2.0
"""No secret of a submission's environment is shown."""

from __future__ import annotations

from slurmscope.jobs.script import MAX_VALUE_CHARACTERS, MAX_VARIABLES, EnvironmentVariable, show_environment


def test_values_of_slurm_and_openmp_are_shown_in_order() -> None:
    found = show_environment(["SLURM_NTASKS=8", "OMP_NUM_THREADS=4", "HOME=/home/ada", "EMPTY="])

    assert [("EMPTY", None), ("HOME", None), ("OMP_NUM_THREADS", "4"), ("SLURM_NTASKS", "8")] == [
        (variable.name, variable.value) for variable in found
    ]


def test_secrets_are_named_only() -> None:
    names = (
        "SLURM_JWT",
        "SLURM_AUTH",
        "OMP_SECRET",
        "AWS_SECRET_ACCESS_KEY",
        "SLURM_MY_PASSWORD",
        "MYSLURM_X",
        "SLURM_x",
    )
    found = show_environment(f"{name}=hunter2" for name in names)

    assert dict.fromkeys(names) == {variable.name: variable.value for variable in found}


def test_lines_that_continue_a_value_are_not_variables() -> None:
    lines = ["BASH_FUNC_x%%=() {", " echo SLURM_A=1", "no sign", "=x", "SLURM_B=a=b", "A-B=1", f"{'X' * 300}=1"]

    assert (EnvironmentVariable(name="SLURM_B", value="a=b"),) == show_environment(lines)


def test_number_and_length_are_bounded() -> None:
    found = show_environment(f"SLURM_{index:05}={'x' * 9999}" for index in range(MAX_VARIABLES + 5))

    assert MAX_VARIABLES == len(found)
    assert {MAX_VALUE_CHARACTERS} == {len(variable.value or "") for variable in found}
