# SPDX-License-Identifier: Apache-2.0
"""Mistakes in a job script that are certain are found, and nothing else is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.script import MAX_OPTIONS, ScriptFinding, lint_script, script_options

GOOD = """#!/bin/bash
#SBATCH --time=1:00:00
#SBATCH -n 4  # tasks

module load mpi
srun ./solve
"""


def _titles(text: str, submit_line: str = "sbatch job.sh") -> list[str]:
    return [finding.title for finding in lint_script(text, submit_line)]


def _lines(*options: str, body: str = "./solve") -> str:
    return "\n".join(["#!/bin/bash", "#SBATCH -t 60", *(f"#SBATCH {option}" for option in options), body, ""])


def test_good_script_has_no_findings() -> None:
    assert [] == _titles(GOOD)
    assert [] == _titles("", "sbatch -t 60 job.sh")


def test_options_of_a_script_are_those_above_its_first_command() -> None:
    text = (
        "#!/bin/sh\n#SBATCH -c4 --mem-per-cpu 2G  # per core\n#SBATCH --comment='two words'\n\n./a\n#SBATCH --mem=4G\n"
    )
    assert "--cpus-per-task=4 --mem-per-cpu=2G" == script_options(text)
    assert "" == script_options("./a\n")


def test_each_part_of_a_heterogeneous_job_has_its_own_options() -> None:
    text = "#!/bin/sh\n#SBATCH -n1 --mem=1G\n#SBATCH hetjob\n#SBATCH -n8 --exclusive\nsrun ./a\n"
    assert ["--ntasks=1 --mem=1G", "--ntasks=8 --exclusive", ""] == [script_options(text, part) for part in range(3)]


def test_options_of_a_hostile_script_are_bounded() -> None:
    many = "".join(f"#SBATCH --x{number}={number}\n" for number in range(2 * MAX_OPTIONS))
    assert MAX_OPTIONS == len(script_options(many).split())
    assert "--mem=1G" == script_options(f"#SBATCH --mem=1G --gres={'x' * 100_000}\n")


@given(st.text(), st.integers(0, 5))
def test_any_text_has_options(text: str, part: int) -> None:
    script_options(text, part)


def test_option_after_the_first_command_is_named_with_its_line() -> None:
    text = "#!/bin/bash\n#SBATCH -t 60\n\n# comment\ncd /scratch\n#SBATCH --mem=4G\n##SBATCH --mem=8G\n./solve\n"

    assert (
        ScriptFinding(
            title="An option after the first command is ignored",
            advice="sbatch reads options up to the first command, which is in line 5. Move this line above it.",
            line=6,
        ),
    ) == lint_script(text)


def test_option_that_is_ignored_does_not_count() -> None:
    assert ["An option after the first command is ignored", "No time limit"] == _titles("cd /\n#SBATCH --time=60\n")


@pytest.mark.parametrize("option", ["-n 8", "-n8", "--ntasks=8", "--ntasks 8", "--nodes=2 --ntasks-per-node=8"])
def test_tasks_that_nothing_starts_are_counted(option: str) -> None:
    assert ["Nothing starts the 8 tasks"] == _titles(_lines(option))


@pytest.mark.parametrize(
    "body", ["srun ./solve", "time mpirun -np 8 ./solve", "exec /opt/mpi/bin/mpiexec.hydra ./solve"]
)
def test_tasks_are_started_by_a_launcher(body: str) -> None:
    assert [] == _titles(_lines("-n 8", body=body))


def test_launcher_in_a_comment_starts_nothing() -> None:
    assert ["Nothing starts the 8 tasks"] == _titles(_lines("-n 8", body="  # srun ./solve\n./solve"))


@pytest.mark.parametrize("option", ["-n 1", "-N 4", "-n 8-16", "--ntasks=many", "-n", "--ntasks=99999999999"])
def test_one_or_an_unknown_number_of_tasks_needs_no_launcher(option: str) -> None:
    assert [] == _titles(_lines(option))


@pytest.mark.parametrize(
    "line",
    [
        "export OMP_NUM_THREADS=8",
        "OMP_NUM_THREADS=8",
        'export OMP_NUM_THREADS="8"  # threads',
        "  OMP_NUM_THREADS='8'; ",
    ],
)
def test_threads_without_cores_are_found(line: str) -> None:
    (finding,) = lint_script(_lines(body=f"{line}\n./solve"))

    assert ("8 threads without --cpus-per-task", 3) == (finding.title, finding.line)
    assert "--cpus-per-task=8" in finding.advice


def test_two_threads_on_one_core_are_found() -> None:
    assert ["2 threads without --cpus-per-task"] == _titles(_lines(body="export OMP_NUM_THREADS=2\n./solve"))
    assert ["Nothing starts the 2 tasks"] == _titles(_lines("-n 2"))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["-c 8"], "export OMP_NUM_THREADS=8"),
        (["--cpus-per-task=8"], "export OMP_NUM_THREADS=8"),
        (["--exclusive=user"], "export OMP_NUM_THREADS=8"),
        ([], "export OMP_NUM_THREADS=1"),
        ([], "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"),
        ([], "#export OMP_NUM_THREADS=8"),
    ],
)
def test_threads_with_cores_are_fine(options: list[str], line: str) -> None:
    assert [] == _titles(_lines(*options, body=f"{line}\n./solve"))


@pytest.mark.parametrize("option", ["--mem=0", "--mem 0", "--mem=0G"])
def test_all_memory_of_a_node_is_named(option: str) -> None:
    assert ["--mem=0 requests all the memory of each node"] == _titles(_lines(option))


def test_whole_nodes_are_named() -> None:
    assert ["--exclusive allocates whole nodes"] == _titles(_lines("--exclusive"))
    assert [] == _titles(_lines("--exclusive=user"))


def test_time_limit_may_be_in_the_script_or_on_the_command_line() -> None:
    assert ["No time limit"] == _titles("#!/bin/sh\n./solve\n")
    for line in ("sbatch -t 60 job.sh", "sbatch --time=60 job.sh", "sbatch --parsable -H --time 60 job.sh"):
        assert [] == _titles("#!/bin/sh\n./solve\n", line)


def test_command_line_overrides_the_script_and_ends_at_its_name() -> None:
    assert [] == _titles(_lines("-n 8"), "sbatch -n 1 job.sh")
    assert [] == _titles(_lines(), "sbatch --exclusive=user job.sh -n 8 --mem=0")
    assert ["Nothing starts the 8 tasks"] == _titles(_lines(), "sbatch -n 8 job.sh")
    assert [] == _titles(_lines(), "sbatch --comment='open quote job.sh")


@given(st.text(max_size=300), st.text(max_size=50))
def test_any_text_is_a_script(text: str, submit_line: str) -> None:
    assert all(finding.title and finding.advice for finding in lint_script(text, submit_line))


@given(
    st.lists(
        st.sampled_from(["#SBATCH -n 8", "#SBATCH --mem=0", "#SBATCH -", "#SBATCH --", "./a", "", "#x"]), max_size=9
    )
)
def test_lines_of_findings_are_lines_of_the_script(lines: list[str]) -> None:
    numbers = [finding.line for finding in lint_script("\n".join(lines)) if finding.line is not None]

    assert all(lines[number - 1].startswith("#SBATCH") for number in numbers)
