# SPDX-License-Identifier: Apache-2.0
"""The Ansible role sets up a node, changes nothing the second time, and never restarts into an error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lab.ports import free_port
from scripts.packages.contents import own_modules
from scripts.packages.pyz import build_pyz
from tests.e2e.install_sandbox import run_as_root
from tests.requirements import refuse

ROOT = Path(__file__).parents[2]
PLAYBOOK = """
- hosts: all
  gather_facts: false
  roles: [slurmscope]
"""
# Ansible's own program for the machine that it sets up, which is this one, and that machine's Python for modules.
PLAY = f"""
play() {{
    {Path(sys.executable).parent}/ansible-playbook --inventory localhost, --connection local \\
        --extra-vars ansible_python_interpreter=/usr/bin/python3 --extra-vars "@$1" "${{@:2}}" play.yml
}}
fetch() {{ curl -fsS --retry 20 --retry-connrefused "http://127.0.0.1:$PORT/metrics"; }}
"""
SCRIPT = """
echo FIRST; play vars.json
fetch | grep -F 'slurmscope_build_info{version="'
test "$(stat -c %U /proc/$(cat /run/slurmscope-node.pid))" = slurmscope
test "$(stat -c %a /etc/slurmscope/answers.toml)" = 600
echo SECOND; play vars.json
echo CHANGED; first=$(cat /run/slurmscope-node.pid); play changed.json
test "$first" != "$(cat /run/slurmscope-node.pid)"
echo BROKEN; before=$(cat /run/slurmscope-node.pid)
! play broken.json || exit 9
test "$before" = "$(cat /run/slurmscope-node.pid)"; kill -0 "$before"
fetch >/dev/null
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a slurmscope.pyz for this machine's own Python."""
    import click
    import pynvml

    folder = Path(click.__file__).parent
    modules = {f"click/{path.name}": path.read_bytes() for path in sorted(folder.glob("*.py"))}
    modules |= {"pynvml.py": Path(pynvml.__file__).read_bytes(), **own_modules()}
    target = tmp_path_factory.mktemp("archive") / "slurmscope.pyz"
    build_pyz(target, modules, ["/usr/bin/python3"])
    return target


def changed(output: str, start: str) -> int:
    """Return how many tasks changed something in the run after this mark."""
    return int(re.findall(r"changed=(\d+)", f"\n{output}".partition(f"\n{start}\n")[2])[0])


def test_role_is_idempotent_and_checks_before_each_restart(archive: Path, tmp_path: Path) -> None:
    if os.geteuid():
        refuse("the role runs as root")
    port = free_port()
    folder = tmp_path / "play"
    folder.mkdir()
    (folder / "play.yml").write_text(PLAYBOOK)
    (folder / "slurmscope.pyz").write_bytes(archive.read_bytes())
    settings = {"web.listen-address": [f"127.0.0.1:{port}"]}
    given = {"slurmscope_file": str(folder / "slurmscope.pyz"), "slurmscope_settings": {"node": settings}}
    kinds = {
        "vars": {},
        "changed": {"node.grace": "90s"},
        "broken": {"node.grace": "soon"},
    }
    for name, more in kinds.items():
        content = given | {"slurmscope_settings": {"node": settings | more}}
        (folder / f"{name}.json").write_text(json.dumps(content))
    environment = {
        "PORT": str(port),
        "ANSIBLE_ROLES_PATH": str(ROOT / "deploy/ansible/roles"),
        "ANSIBLE_HOME": "/tmp/ansible",
        "ANSIBLE_NOCOLOR": "1",
    }
    visible = (ROOT, Path(sys.prefix))

    done = run_as_root(PLAY + SCRIPT, tmp_path, clone=folder, environment=environment, visible=visible)

    output = done.stdout + done.stderr
    assert 0 == done.returncode, output[-6000:]
    assert changed(done.stdout, "FIRST") > 3
    assert 0 == changed(done.stdout, "SECOND")
    # The answers, the files of the service, and its restart.
    assert 3 == changed(done.stdout, "CHANGED")
    assert "node.grace in /etc/slurmscope/node.toml: " in done.stdout.partition("\nBROKEN\n")[2]


def test_syntax_of_the_example_is_valid(tmp_path: Path) -> None:
    playbook = ROOT / "deploy/ansible/site.yml"
    argv = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        "--syntax-check",
        "--inventory",
        "n1,",
        str(playbook),
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False)

    assert 0 == done.returncode, done.stderr
