# SPDX-License-Identifier: Apache-2.0
"""Prolog and Epilog are installed and removed in the order of docs/tracing.md: no node is drained.

The other order is shown too, with a real slurmd: a name without a file, or a folder without files, drains the node.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ALICE, SlurmLab
from lab.config import LabSettings

ROOT = Path(__file__).parents[2]
SCRIPTS = ("prolog", "epilog", "taskprolog")
PLACE = "/etc/slurm/slurmscope"

pytestmark = [pytest.mark.lab]


def documented_lines() -> list[str]:
    """Return the lines of slurm.conf that the guide names."""
    text = (ROOT / "docs" / "tracing.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?ms)^ *```ini\n(.*?)^ *```$", text)
    return [line.strip() for line in block.splitlines()]


class Files:
    """Install and remove the scripts in a folder that stands for ``/etc/slurm/slurmscope``."""

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab = lab
        self.folder = folder

    def install(self) -> None:
        for name in SCRIPTS:
            shutil.copy(ROOT / "deploy" / f"{name}-slurmscope", self.folder / name)

    def remove(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()

    def configure(self, *lines: str) -> None:
        """Replace the lines of Prolog and others in slurm.conf, and let the daemons read it again."""
        conf = Path(self.lab.environment["SLURM_CONF"])
        kept = [
            line for line in conf.read_text(encoding="utf-8").splitlines() if not re.match(r"(Task)?(Pro|Epi)log", line)
        ]
        conf.write_text(
            "\n".join([*kept, *(line.replace(PLACE, str(self.folder)) for line in lines)]) + "\n", encoding="utf-8"
        )
        self.lab.run("scontrol", "reconfigure")

    def run_job(self) -> int:
        return self.lab.submit(ALICE, script="true")

    def wait_idle(self) -> None:
        self.lab.wait_for(lambda: {"idle"} == set(self.lab.node_states().values()), what="an idle node")

    def wait_drained(self) -> None:
        self.lab.wait_for(lambda: "drain" in str(self.lab.node_states().values()), what="a drained node")


@pytest.fixture
def files() -> Iterator[Files]:
    """Give a cluster of one node without Prolog."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-lab-"))
    folder.chmod(0o755)
    scripts = Path(tempfile.mkdtemp(prefix="slurmscope-prolog-"))
    scripts.chmod(0o755)
    lab = SlurmLab(folder, LabSettings(node_count=1))
    try:
        lab.start()
        yield Files(lab, scripts)
    finally:
        lab.destroy()
        shutil.rmtree(scripts)


def test_documented_order_drains_no_node(files: Files) -> None:
    assert not [line for line in documented_lines() if "*" in line]
    files.install()
    files.configure(*documented_lines())
    with_scripts = files.run_job()
    files.lab.wait_state(with_scripts, {"COMPLETED"})
    files.wait_idle()

    files.configure()
    files.remove()
    without = files.run_job()

    files.lab.wait_state(without, {"COMPLETED"})
    files.wait_idle()


@pytest.mark.parametrize("prolog", [f"Prolog={PLACE}/prolog", f"Prolog={PLACE}/*"])
def test_removing_files_first_drains_the_node(files: Files, prolog: str) -> None:
    files.install()
    files.configure(prolog)
    files.lab.wait_state(files.run_job(), {"COMPLETED"})

    files.remove()
    files.run_job()

    files.wait_drained()
