# SPDX-License-Identifier: Apache-2.0
"""A real slurmd runs our Epilog: what a job left behind goes, and no node is ever drained over it."""

import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.cgroups import CGROUP_ROOT, has_cgroup_v1
from lab.config import LabSettings

EPILOG = Path(__file__).parents[2] / "deploy" / "epilog-slurmscope"

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not has_cgroup_v1(), reason="this machine has no cgroup v1 controllers"),
]


@pytest.fixture
def epilog_lab() -> Iterator[SlurmLab]:
    """Give a cluster of one node that runs the Epilog after each job."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    folder.chmod(0o755)
    scripts = Path(tempfile.mkdtemp(prefix="slurmscope-epilog-"))
    script = Path(shutil.copy(EPILOG, scripts))
    lab = SlurmLab(folder, LabSettings(node_count=1, extra_lines=(f"Epilog={script}",)))
    try:
        lab.start()
        yield lab
    finally:
        lab.destroy()
        shutil.rmtree(scripts)


def test_leftover_cgroup_goes_and_the_node_stays_in_service(epilog_lab: SlurmLab) -> None:
    job = epilog_lab.submit(ALICE, script="sleep 60")
    user = f"slurm_{epilog_lab.nodes[0]}/uid_{pwd.getpwnam(ALICE).pw_uid}"
    folder = CGROUP_ROOT / "cpuacct" / user / f"job_{job}"
    epilog_lab.wait_for((folder / "step_batch").is_dir, what="the job's cgroup")
    # Slurm knows nothing of this folder, so it cannot remove those above it either.
    (folder / "step_batch" / "made_by_a_user").mkdir()
    epilog_lab.run("scancel", str(job))
    epilog_lab.wait_for(lambda: not folder.exists(), what="the leftover to go")
    epilog_lab.wait_for(lambda: {"idle"} == set(epilog_lab.node_states().values()), what="an idle node")
    again = epilog_lab.submit(ALICE, script="true")
    epilog_lab.wait_state(again, {"COMPLETED"})
