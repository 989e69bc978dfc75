# SPDX-License-Identifier: Apache-2.0
"""Compare the forms in which a node gets the agent: a virtual environment, slurmscope.pyz, and the deb.

Each has the same modules, for the interpreter in /usr/bin, compiled as its installation leaves them. pip downloads
click and NVIDIA's library for Python. The portal's package is not on nodes, and not among them.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from bench.measure import cpu_seconds_of, judge_ratio, resident_bytes_of, running_exporter, scrape
from scripts.packages.contents import NODE_PACKAGES, install_packages, own_modules
from scripts.packages.deb import build_deb, write_tree
from scripts.packages.pyz import build_pyz
from scripts.packages.roles import FOLDER, common_package
from slurmscope import __version__

PYTHON = "/usr/bin/python3"
TRIES = 5
SCRAPES = 3
START_LIMIT = 1.5


def main() -> int:
    """Print a row for each form, and return 1 when one of them starts too slowly."""
    with tempfile.TemporaryDirectory() as folder:
        modules = {**own_modules(), **install_packages(Path(folder, "downloaded"), *NODE_PACKAGES)}
        forms = dict(_make_forms(Path(folder), modules))
        starts = {name: float("inf") for name in forms}
        for _ in range(TRIES):
            for name, (program, _, _) in forms.items():
                starts[name] = min(starts[name], _start_seconds(program))
        print(f"{'form':5} {'file':>8} {'installed':>10} {'--version':>10} {'first answer':>13} {'resident':>9}")
        for name, (program, file_bytes, size_bytes) in forms.items():
            seconds, resident_bytes = _run_agent(program)
            sizes = f"{file_bytes / 1e6:5.1f} MB {size_bytes / 1e6:7.1f} MB"
            print(f"{name:5} {sizes} {starts[name]:8.3f} s {seconds:11.2f} s {resident_bytes / 1e6:6.1f} MB")
    kept = [
        judge_ratio(
            f"start of the {name}", f"{starts[name]:.3f} s of CPU", starts[name] / starts["venv"], START_LIMIT, of
        )
        for name in ("pyz", "deb")
        for of in (f"a virtual environment, {starts['venv']:.3f} s",)
    ]
    return 0 if all(kept) else 1


def _make_forms(folder: Path, modules: Mapping[str, bytes]) -> Iterator[tuple[str, tuple[Path, int, int]]]:
    """Yield each form: its program, what is copied to a node, and what is on its disk afterwards, in bytes."""
    environment = folder / "venv"
    subprocess.run([PYTHON, "-m", "venv", environment], check=True)
    (packages,) = environment.glob("lib/python3*/site-packages")
    _write(packages, modules)
    program = environment / "bin" / "slurmscope"
    program.write_text(f"#!{environment}/bin/python\nimport sys\nfrom slurmscope.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    _compile(packages)
    yield "venv", (program, 0, _size(environment))

    archive = folder / "slurmscope.pyz"
    build_pyz(archive, modules, [PYTHON])
    yield "pyz", (archive, archive.stat().st_size, archive.stat().st_size)

    package = common_package(modules, __version__)
    root = folder / "root"
    root.mkdir()
    write_tree(package, root)
    program = root / "usr/bin/slurmscope"
    program.write_text(program.read_text().replace(f"/{FOLDER}", f"{root}/{FOLDER}"))
    _compile(root / FOLDER)
    yield "deb", (program, build_deb(package, __version__, folder).stat().st_size, _size(root))


def _write(folder: Path, modules: Mapping[str, bytes]) -> None:
    for name, content in modules.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def _compile(folder: Path) -> None:
    subprocess.run([PYTHON, "-I", "-m", "compileall", "-q", str(folder)], check=True)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


def _start_seconds(program: Path) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([program, "--version"], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _run_agent(program: Path) -> tuple[float, int]:
    """Return the CPU seconds from start to first page, and what is resident after some pages."""
    with running_exporter(role="node", program=(str(program),)) as (pid, address):
        scrape(address)
        seconds = cpu_seconds_of(pid)
        for _ in range(SCRAPES - 1):
            scrape(address)
        return seconds, resident_bytes_of(pid)


if __name__ == "__main__":
    sys.exit(main())
