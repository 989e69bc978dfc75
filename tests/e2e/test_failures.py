# SPDX-License-Identifier: Apache-2.0
"""The report of a real job that failed says what sacct and scontrol say: how, which step, where its output is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import ALICE, SlurmLab
from tests.processes import run_slurmscope, until

LAST_NODE = "$(scontrol show hostnames $SLURM_JOB_NODELIST | tail -n1)"
SCRIPTS: dict[str, tuple[tuple[str, ...], str]] = {
    "not found": ((), "no-such-command-of-ours"),
    "crash below the script": ((), "bash -c 'kill -SEGV $$'; exit $?"),
    "crash of a step": ((), "srun bash -c 'kill -BUS $$'"),
    "signal": ((), "kill -TERM $$"),
    "out of memory": (("--mem=50M",), "python3 -c 'bytearray(300 << 20)'"),
    "second node": (("--nodes=2", "--output=%x-%j.log"), f"srun -N1 -n1 -w {LAST_NODE} sh -c 'exit 3'"),
    "step of a job that completes": ((), "srun sh -c 'exit 5'; true"),
    "good": ((), "srun true"),
}
ENDED = {"COMPLETED", "FAILED", "OUT_OF_MEMORY"}


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Hold jobs that ended by what is special about them."""

    lab: SlurmLab
    jobs: dict[str, int]
    outputs: dict[str, str]
    """Where scontrol says that the output is."""
    archive: Path

    def report(self, name: str) -> dict[str, Any]:
        done = run_slurmscope(
            "report", str(self.jobs[name]), "--format", "json", "--archive.url", str(self.archive),
            environment=self.lab.environment,
        )  # fmt: skip
        assert (0, "") == (done.returncode, done.stderr)
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    def has_ended(self, name: str) -> bool:
        """Return whether slurmdbd knows the end of the job, and its submission, which may arrive after the end."""
        folder = self.lab.run("sacct", "-n", "-X", "-P", "-j", str(self.jobs[name]), "--format=WorkDir").strip()
        return bool(folder) and self.sacct(name).get("", ("",))[0] in ENDED

    def sacct(self, name: str) -> dict[str, tuple[str, str, str]]:
        """Return state, exit code and nodes by step; the job itself has no step."""
        answer = self.lab.run(
            "sacct", "-n", "-P", "-j", str(self.jobs[name]), "--format=JobIDRaw,State,ExitCode,NodeList"
        )
        rows = (line.split("|") for line in answer.splitlines())
        return {job.partition(".")[2]: (state, code, nodes) for job, state, code, nodes in rows}


@pytest.fixture(scope="module")
def failed(slurm_lab: SlurmLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Failed]:
    """Let every job run to its end."""
    lab = slurm_lab
    lab.reset()
    jobs = {name: lab.submit(ALICE, *options, script=script) for name, (options, script) in SCRIPTS.items()}
    outputs = {}
    for name, job in jobs.items():
        shown = lab.run("scontrol", "show", "job", str(job))
        outputs[name] = next(line.partition("=")[2] for line in shown.split() if line.startswith("StdOut="))
    made = Failed(lab=lab, jobs=jobs, outputs=outputs, archive=tmp_path_factory.mktemp("failures") / "none.db")
    for name, job in jobs.items():
        lab.wait_state(job, ENDED, timeout=120)
        # slurmdbd hears of the job last.
        until(lambda: made.has_ended(name))  # noqa: B023 - called before the next one
    yield made
    lab.reset()


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [
        ("not found", "batch", "exit code 127: command not found"),
        # sacct 22.05 shows 139 as 11.
        ("crash below the script", "batch", "139: a command in it was killed by SIGSEGV"),
        ("crash of a step", "0", "killed by SIGBUS, signal 7 (bus error)"),
        ("signal", "batch", "killed by SIGTERM, signal 15"),
        ("out of memory", "batch", "OOM-killed"),
        ("second node", "0", "exit code 3"),
        ("step of a job that completes", "0", "exit code 5. The job completed all the same"),
    ],
)
def test_failure_is_that_of_sacct(failed: Failed, name: str, step: str, words: str) -> None:
    failure, known = failed.report(name)["failure"], failed.sacct(name)

    state, status, nodes = known[step]
    # A step that was killed by a signal is CANCELLED for Slurm.
    assert state != "COMPLETED"
    assert (step, nodes) == (failure["step"], failure["nodes"])
    assert status == f"{failure['exit_code']}:{failure['exit_signal']}"
    assert words in failure["explanation"]


def test_step_failed_on_the_second_node(failed: Failed) -> None:
    nodes = failed.report("second node")["summary"]["record"]["nodes"]

    assert [nodes[1]] == [failed.report("second node")["failure"]["nodes"]]


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name != "good"])
def test_output_is_where_scontrol_says(failed: Failed, name: str) -> None:
    failure = failed.report(name)["failure"]

    assert failed.outputs[name] == failure["stdout"] == failure["stderr"]
    assert (name != "second node") == failure["is_output_assumed"]


def test_good_job_has_no_failure(failed: Failed) -> None:
    assert failed.report("good")["failure"] is None
    assert "What went wrong" not in run_slurmscope(
        "report", str(failed.jobs["good"]), "--full", "--archive.url", str(failed.archive),
        environment=failed.lab.environment,
    ).stdout  # fmt: skip


def test_text_begins_with_the_cause(failed: Failed) -> None:
    done = run_slurmscope(
        "report", str(failed.jobs["not found"]), "--full", "--archive.url", str(failed.archive),
        environment=failed.lab.environment,
    )  # fmt: skip

    assert "What went wrong" in done.stdout
    assert done.stdout.index("command not found") < done.stdout.index("Use of requested resources")
