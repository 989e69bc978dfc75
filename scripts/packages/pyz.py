# SPDX-License-Identifier: Apache-2.0
"""Build slurmscope.pyz: slurmscope for nodes and controllers in one file, compiled, with its files to deploy.

A folder per release of Python has compiled modules only; another one has the sources, for every other release. An
archive is read as a whole directory once, which costs 3 ms for 2,000 modules; sources cost 0.05 to 0.2 s.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from scripts.packages.contents import shared_files

EPOCH = (1980, 1, 1, 0, 0, 0)
START = Path(__file__).with_name("start.in")
LEFT_OUT = ("slurmscope/portal/static/", "slurmscope/portal/templates/")
"""The portal needs packages that are not pure Python."""

# Runs in every interpreter: sources come as an archive, compiled modules that are never compared with files go back.
_COMPILE = """
import importlib.util, io, marshal, sys, zipfile
print_to = sys.stdout.buffer
archive = zipfile.ZipFile(io.BytesIO(sys.stdin.buffer.read()))
result = io.BytesIO()
with zipfile.ZipFile(result, "w") as target:
    for name in archive.namelist():
        source = archive.read(name)
        header = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + importlib.util.source_hash(source)
        code = compile(source, name, "exec", dont_inherit=True, optimize=0)
        target.writestr(zipfile.ZipInfo("%d.%d/%sc" % (*sys.version_info[:2], name)), header + marshal.dumps(code))
print_to.write(result.getvalue())
"""


def build_pyz(target: Path, modules: Mapping[str, bytes], interpreters: Iterable[str]) -> list[str]:
    """Write the archive, the same bytes for the same input; return the releases of Python it is compiled for."""
    source = {name: content for name, content in modules.items() if not name.startswith(LEFT_OUT)}
    entries = {f"source/{name}": content for name, content in source.items()}
    for interpreter in interpreters:
        entries |= compile_modules(interpreter, source)
    releases = sorted({name.split("/")[0] for name in entries} - {"source"})
    start = START.read_text(encoding="utf-8").replace("@COMPILED@", " ".join(releases) or "none")
    entries |= {f"share/{name}": content for name, content in shared_files().items()}
    aside = target.with_name(f"{target.name}.new")
    with aside.open("wb") as file:
        file.write(b"#!/usr/bin/python3 -I\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in sorted({**entries, "__main__.py": start.encode()}.items()):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), content, zipfile.ZIP_DEFLATED, 9)
    aside.chmod(0o755)
    aside.replace(target)
    return releases


def compile_modules(interpreter: str, modules: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return compiled modules by path; the interpreter may be a command, such as ``chroot /debian-13 python3``."""
    sources = io.BytesIO()
    with zipfile.ZipFile(sources, "w") as archive:
        for name, content in modules.items():
            if name.endswith(".py"):
                archive.writestr(name, content)
    # Constants of a set are written in the order of their hashes.
    environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONHASHSEED": "0"}
    argv = [*shlex.split(interpreter), "-P", "-s", "-S", "-B", "-c", _COMPILE]
    done = subprocess.run(argv, input=sources.getvalue(), capture_output=True, env=environment, check=True, timeout=600)
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
