# SPDX-License-Identifier: Apache-2.0
"""In a PID namespace of its own the agent sees no process of a job: it counts the job on, and says what is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import has_cgroup_v1
from tests.processes import run_slurmscope, serving, until
from tests.requirements import refuse

COUNTED_SECONDS = 12.0
"""An agent takes an empty cgroup for a leftover after 10 s."""
OWN_NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
# Burns CPU time, and writes aside and renames how much.
BURN = """exec python3 -c '
import os, sys, time
while True:
    until = time.process_time() + 0.2
    while time.process_time() < until: pass
    with open(sys.argv[1] + ".part", "w") as file: file.write(str(time.process_time()))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
' {told}"""


def test_job_is_counted_on_and_the_namespace_is_named(clean_lab: SlurmLab) -> None:
    if os.geteuid():
        refuse("PID namespaces are made by root")
    lab = clean_lab
    folder = lab.folder / "work" / "namespace"
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    with serving("node", prefix=OWN_NAMESPACE) as agent:
        agent.get()
        # It begins after the agent, so that it would count as a leftover only after a while.
        job = lab.submit(ALICE, "--ntasks=1", script=BURN.format(told=folder / "told"))
        until(lambda: told(folder) > COUNTED_SECONDS)
        before = told(folder)
        page = agent.samples()
        warnings = [line for line in agent.log if "level=warn " in line and "PID namespace" in line]
    done = run_slurmscope("doctor", "node", prefix=OWN_NAMESPACE)

    (state,) = [labels[-1] for labels in page["jobs_info"] if labels[0] == str(job)]
    (spent,) = [seconds for labels, seconds in page["jobs_cpu_seconds_total"].items() if labels[0] == str(job)]
    assert ("false", 1) == (state, len(warnings))
    assert before <= spent <= told(folder) + 5
    assert not [labels for labels in page["jobs_processes"] if labels[0] == str(job)]
    assert not page["jobs_stale_cgroups"] or not has_cgroup_v1()
    assert 0 == page["slurmscope_source_available"]["processes",]
    assert "failed  PID namespace: this PID namespace is not that of the host" in done.stdout
    assert "\nBegin with PID namespace; other failures may follow from it: " in done.stdout


def told(folder: Path) -> float:
    try:
        return float((folder / "told").read_text())
    except FileNotFoundError:
        return 0.0


def test_agent_on_the_host_warns_of_nothing() -> None:
    if str(Path("/proc/self/ns/pid").readlink()) != "pid:[4026531836]":
        pytest.skip("this machine is in a PID namespace of its own, as a container is")
    with serving("node") as agent:
        assert not [line for line in agent.log if "PID namespace" in line]
    assert "PID namespace" not in run_slurmscope("doctor", "node").stdout
