# SPDX-License-Identifier: Apache-2.0
"""What the Containerfile does makes a root folder in which services run without root, and write nothing to it.

Its instructions are run in a minimal Debian, as a builder without layers would: containers need a registry and
privileges that machines of tests do not have. Only those instructions are known here that the file has.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

from lab.ports import free_port
from tests.e2e.install_sandbox import run_as_root
from tests.e2e.minimal_root import make_root
from tests.e2e.test_packages import NEW, debs, packages  # noqa: F401 - fixtures

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "container"
KNOWN = {"FROM", "ARG", "RUN", "USER", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}


def instructions() -> dict[str, str]:
    """Return the instructions of the file by name; each is there once."""
    text = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    lines = re.sub(r"\\\n", " ", re.sub(r"(?m)^#.*\n", "", text)).split("\n")
    pairs = [line.split(maxsplit=1) for line in lines if line.strip()]
    assert {name for name, _ in pairs} == KNOWN
    assert len(pairs) == len(KNOWN)
    return {name: " ".join(value.split()) for name, value in pairs}


def test_services_run_without_root_on_a_read_only_root(debs: Path, tmp_path: Path) -> None:  # noqa: F811
    known = instructions()
    mount, _, install = known["RUN"].partition(" ")
    assert mount == "--mount=type=bind,target=/debs"
    assert known["FROM"] == "docker.io/library/debian:bookworm-slim"
    (check,) = re.findall(r" CMD (\[.*\])$", known["HEALTHCHECK"])
    command = shlex.join([*json.loads(known["ENTRYPOINT"]), *json.loads(known["CMD"])])
    assert known["EXPOSE"] == "9092"
    port = free_port()
    script = f"""
export {known["ARG"]}
mkdir /debs && mount --bind {debs}/bookworm/{NEW} /debs
{install}
umount /debs
test ! -e /usr/lib/systemd/system/slurmscope-node.service
command -v squeue sacct
mount -t tmpfs tmpfs /tmp
mount -o remount,bind,ro /
as_user="setpriv --reuid {known["USER"]} --regid {known["USER"]} --clear-groups --no-new-privs --bounding-set=-all"
! $as_user touch /root/file /usr/file
$as_user {command} --web.listen-address 127.0.0.1:{port} &
check={shlex.quote(shlex.join(json.loads(check)))}
for try in $(seq 60); do ! $as_user $check http://127.0.0.1:{port} || break; sleep 1; done
$as_user $check http://127.0.0.1:{port} && echo HEALTHY
kill -0 $! && kill $! && wait $!
! $as_user $check http://127.0.0.1:{port} && echo ENDED
"""

    done = run_as_root(script, tmp_path, clone=debs, environment={}, base=make_root("bookworm"))

    assert 0 == done.returncode, done.stdout[-2000:] + done.stderr[-4000:]
    assert ["HEALTHY", "ENDED"] == done.stdout.splitlines()[-2:]
