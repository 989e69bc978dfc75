# SPDX-License-Identifier: Apache-2.0
"""The commands of the README and of the installation guide work as they are written, against a real cluster.

Blocks marked ``sh`` are run from top to bottom; other blocks (``console``, ``text``) are shown to people only.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from lab import SlurmLab
from lab.ports import free_port
from tests.e2e.install_sandbox import run_as_root

ROOT = Path(__file__).parents[2]
PACKAGED = ("src", "deploy", "docs", "pyproject.toml", "README.md", "LICENSE")
BLOCK = re.compile(r"(?ms)^```sh\n(.*?)^```$")
PORTS = ("9092", "9798")

# What the guide promises and no command of it shows.
AFTERWARDS = """
for try in $(seq 60); do [ ! -e /var/lib/node_exporter/slurm.prom ] || break; sleep 1; done
grep -x 'slurm_up 1' /var/lib/node_exporter/slurm.prom
if curl -sS --max-time 5 http://localhost:9092/metrics; then exit 1; fi
[ "$(stat -c %a:%G /etc/slurmscope/server.key)" = 640:slurmscope ]
diff -r --exclude=grafana --exclude=__pycache__ --exclude=__init__.py deploy /opt/slurmscope/share/slurmscope
cmp deploy/grafana/cluster.json /opt/slurmscope/share/slurmscope/grafana/cluster.json
"""


def commands(page: Path, heading: str = "") -> str:
    """Return the commands of a page that are to be run, from a heading on."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(BLOCK.findall(text[text.index(heading) :]))


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a copy of what is packaged, with ports that are free on this machine."""
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in PACKAGED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    replacements = {port: str(free_port()) for port in PORTS}
    replacements["python3.11"] = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for file in (folder / "README.md", *(folder / "docs").rglob("*.md"), *(folder / "deploy").glob("*.*")):
        text = file.read_text(encoding="utf-8")
        for old, new in replacements.items():
            text = text.replace(old, new)
        file.write_text(text, encoding="utf-8")
    return folder


def settings(clone: Path) -> dict[str, str]:
    """Return variables for the installers: where to download from, and that what is installed need not be newer."""
    (clone / "apt.conf").write_text('APT::Get::Upgrade "false";\n', encoding="utf-8")
    of_pip = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    return {**of_pip, "APT_CONFIG": str(clone / "apt.conf")}


def traces() -> list[object]:
    """Return what an installation on this machine itself would change."""
    places = ("/opt", "/etc/passwd", "/etc/systemd/system")
    # Programs that other tests run keep caches and histories in hidden files.
    shown = sorted(path.name for path in Path("/root").iterdir() if not path.name.startswith("."))
    return [*(Path(place).stat().st_mtime_ns for place in places), shown]


def test_installation_guide_leads_to_running_services(clean_lab: SlurmLab, clone: Path, tmp_path: Path) -> None:
    environment = {**settings(clone), **clean_lab.environment}
    before = traces()
    port = tomllib.loads((clone / "deploy" / "cluster.toml").read_text(encoding="utf-8"))["web"]["listen-address"][0]
    script = commands(clone / "docs" / "install.md") + f"cd {clone}\n" + AFTERWARDS.replace(":9092", port)

    done = run_as_root(script, tmp_path, clone=clone, environment=environment, visible=[clean_lab.folder])

    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-8000:]
    assert 3 == done.stdout.splitlines().count("slurm_up 1"), done.stdout
    assert "jobs_on_node 0" in done.stdout
    assert "<title>" in done.stdout
    assert "SUCCESS" in done.stdout
    assert 2 == done.stdout.count("All checks passed.")
    assert before == traces()


def test_readme_leads_to_the_metrics_of_a_cluster(clean_lab: SlurmLab, clone: Path, tmp_path: Path) -> None:
    environment = {**settings(clone), **clean_lab.environment}
    script = commands(clone / "README.md", "## On a real cluster")

    done = run_as_root(script, tmp_path, clone=clone, environment=environment, visible=[clean_lab.folder])

    assert 0 == done.returncode, done.stdout[-4000:] + done.stderr[-8000:]
    assert 1 == done.stdout.splitlines().count("slurm_up 1"), done.stdout
    assert "All checks passed." == done.stdout.splitlines()[-1]
