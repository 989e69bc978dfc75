# SPDX-License-Identifier: Apache-2.0
"""Prepare a release: check the repository, build all forms of installation, and list what is in them.

    make release VERSION=1.2.3

``dist/1.2.3`` gets wheel, sdist, ``slurmscope.pyz``, debs and rpms, a list of all contained packages (CycloneDX), and
``SHA256SUMS``. The wheel is tried in an empty virtual environment. Nothing is published and no tag is made; the
commands for that are printed at the end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = ("auth", "gpu", "rest", "portal", "mariadb", "postgresql")
NPM_NAMES = {"htmx": "htmx.org", "uplot": "uplot"}
VERSION = re.compile(r"\d+\.\d+\.\d+((a|b|rc)\d+)?")


class NotReady(Exception):
    """Say in one sentence why the repository cannot be released as this version."""


def main(arguments: list[str] | None = None) -> int:
    """Run the steps in order, and stop at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version", help="version to release, without a leading v")
    version = parser.parse_args(arguments).version
    try:
        check_repository(ROOT, version)
        folder = ROOT / "dist" / version
        wheel = build(ROOT, folder, version)
        try_wheel(wheel, version)
        subprocess.run([ROOT / ".venv/bin/python", "-m", "scripts.packages", "--output", folder], cwd=ROOT, check=True)
        list_contents(ROOT, wheel, folder / f"slurmscope-{version}.cdx.json")
        write_checksums(folder)
    except (NotReady, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print(f"Built {len([*folder.iterdir()])} files in {folder.relative_to(ROOT)}. After make test, tag the commit:")
    print(f"  git tag --annotate v{version} --message 'slurmscope {version}' && git push origin v{version}")
    return 0


def check_repository(root: Path, version: str) -> None:
    """Raise NotReady unless a clean, untagged commit declares this version in the package and in the changelog."""
    if not VERSION.fullmatch(version):
        raise NotReady(f"{version!r} is not a version such as 1.2.3 or 1.2.3rc1")
    if changed := _git(root, "status", "--porcelain"):
        raise NotReady(f"commit or remove these changes first:\n{changed}")
    if _git(root, "tag", "--list", f"v{version}"):
        raise NotReady(f"the tag v{version} exists already: choose the next version")
    declared = _read(root / "src" / "slurmscope" / "__init__.py", r'^__version__ = "(.*)"$')
    if declared != version:
        raise NotReady(f"src/slurmscope/__init__.py says {declared}: set __version__ to {version} and commit it")
    _check_changelog((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)


def _check_changelog(text: str, version: str) -> None:
    sections = dict(re.findall(r"(?ms)^## (\S+)[^\n]*\n(.*?)(?=^## |\Z)", text))
    if not sections.get(version, "").strip():
        raise NotReady(f"CHANGELOG.md has no section '## {version}': rename '## Unreleased', and commit it")
    if sections.get("Unreleased", "").strip():
        raise NotReady(f"CHANGELOG.md still has entries under '## Unreleased': move them to '## {version}'")


def build(root: Path, folder: Path, version: str) -> Path:
    """Build wheel and sdist with the build backend that pyproject.toml names, and return the wheel."""
    with tempfile.TemporaryDirectory() as environment:
        python = _make_environment(Path(environment), "hatchling")
        subprocess.run([python, "-m", "hatchling", "build", "--directory", str(folder)], cwd=root, check=True)
    return folder / f"slurmscope-{version}-py3-none-any.whl"


def try_wheel(wheel: Path, version: str) -> None:
    """Install the wheel with the fewest packages, and raise NotReady unless it runs and has the files to deploy."""
    with tempfile.TemporaryDirectory() as folder:
        python = _make_environment(Path(folder), str(wheel))
        slurmscope = Path(python).with_name("slurmscope")
        shown = subprocess.run([slurmscope, "--version"], capture_output=True, text=True, check=True).stdout
        if version not in shown.split():
            raise NotReady(f"the wheel says {shown.strip()!r} instead of {version}")
        page = subprocess.run([slurmscope, "node", "--once"], capture_output=True, text=True, check=True).stdout
        if f'slurmscope_build_info{{version="{version}"' not in page:
            raise NotReady("the node agent of the wheel serves no slurmscope_build_info of this version")
        unit = Path(folder, "share", "slurmscope", "slurmscope-node.service")
        if not unit.is_file():
            raise NotReady("the wheel has no share/slurmscope/slurmscope-node.service")


def list_contents(root: Path, wheel: Path, file: Path) -> None:
    """Write which packages the largest installation has, with their versions and licences."""
    with tempfile.TemporaryDirectory() as folder:
        python = _make_environment(Path(folder, "installed"), f"{wheel}[{','.join(EXTRAS)}]")
        lister = Path(_make_environment(Path(folder, "lister"), "cyclonedx-bom")).with_name("cyclonedx-py")
        options = ("--output-reproducible", "--pyproject", str(root / "pyproject.toml"), "-o", str(file))
        subprocess.run([lister, "environment", *options, python], check=True)
    add_vendored(root, file)


def add_vendored(root: Path, file: Path) -> None:
    """Add the scripts that the portal's pages include to the list of packages."""
    listed = json.loads(file.read_text(encoding="utf-8"))
    annotations = tomllib.loads((root / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
    licences = {Path(each["path"]).name.rstrip("-*"): each["SPDX-License-Identifier"] for each in annotations}
    for script in sorted((root / "src/slurmscope/portal/static/vendor").glob("*.min.js")):
        name, _, version = script.name.removesuffix(".min.js").partition("-")
        part = {"type": "library", "name": name, "version": version, "purl": f"pkg:npm/{NPM_NAMES[name]}@{version}"}
        listed["components"].append({**part, "licenses": [{"license": {"id": licences[name]}}]})
    file.write_text(json.dumps(listed, indent=2) + "\n", encoding="utf-8")


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS, as ``sha256sum --check`` reads it."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != "SHA256SUMS")
    lines = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / "SHA256SUMS").write_text("".join(lines), encoding="utf-8")


def _make_environment(folder: Path, *packages: str) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *packages], check=True)
    return python


def _git(root: Path, *arguments: str) -> str:
    argv = ["git", "-C", str(root), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.rstrip()


def _read(file: Path, pattern: str) -> str | None:
    match = re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else None


if __name__ == "__main__":
    sys.exit(main())
