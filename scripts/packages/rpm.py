# SPDX-License-Identifier: Apache-2.0
"""Build rpms with rpmbuild, which Debian has too; what rpm finds out about files elsewhere is switched off."""

from __future__ import annotations

import os
import subprocess
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from scripts.packages.deb import EPOCH_SECONDS, deb_version, write_tree
from scripts.packages.roles import File, Package
from scripts.packages.scriptlets import rpm

LAUNCHER = b"""#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# /usr/bin/python3 may be older than what slurmscope needs, as on RHEL 8 and 9. Compiled modules of the portal are for
# one release only.
release=none
[ ! -r /usr/lib/slurmscope/python ] || read -r release </usr/lib/slurmscope/python
for python in "/usr/bin/python$release" /usr/bin/python3.1[1-9] /usr/bin/python3; do
    [ ! -x "$python" ] || exec "$python" -I /usr/lib/slurmscope/start "$@"
done
echo "slurmscope: Python 3.11 or later is needed: install python3.11 of your distribution" >&2
exit 2
"""
_PYTHON = "(python3.11 or python3.12 or python3.13 or python3 >= 3.11)"
# Of what each package contains: click, htmx and uPlot; for the portal also the packages that it imports.
_LICENSE = "Apache-2.0 AND BSD-3-Clause AND MIT AND 0BSD"
_PORTAL_LICENSE = "Apache-2.0 AND BSD-3-Clause AND LGPL-3.0-only AND MIT AND PSF-2.0"
_MACROS = (
    "_build_id_links none",
    "__os_install_post %{nil}",
    "_use_internal_dependency_generator 0",
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "_buildhost localhost",
    "_binary_payload w6.gzdio",
    "_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
)
# Folders of the system, which other packages own; rpm lets several packages own those of completion.
_FOREIGN = {"usr", "usr/bin", "usr/lib", "usr/lib/systemd", "usr/lib/systemd/system", "etc"}
_FOREIGN |= {"usr/share", "usr/share/doc", "usr/share/licenses", "usr/share/man", "usr/share/man/man1"}
# Where Fedora and RHEL have what is elsewhere in Debian.
_MOVED = {
    "usr/share/doc/slurmscope/copyright": "usr/share/licenses/slurmscope/LICENSE",
    "usr/share/zsh/vendor-completions/_slurmscope": "usr/share/zsh/site-functions/_slurmscope",
}


def build_rpm(package: Package, version: str, folder: Path) -> Path:
    """Write the rpm of a package to a folder, and return its path."""
    release = f"1.py{package.python.replace('.', '')}" if package.python else "1"
    architecture = os.uname().machine if package.python else "noarch"
    changed = _adapted(package)
    with tempfile.TemporaryDirectory() as place:
        tree, top = Path(place, "tree"), Path(place, "top")
        tree.mkdir()
        write_tree(changed, tree)
        spec = Path(place, "slurmscope.spec")
        spec.write_text("\n".join(_spec(changed, version, release, tree)), encoding="utf-8")
        macros = [word for macro in (f"_topdir {top}", f"_rpmdir {folder}", *_MACROS) for word in ("--define", macro)]
        argv = ["rpmbuild", "--quiet", "-bb", "--target", architecture, *macros, str(spec)]
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH_SECONDS)}
        subprocess.run(argv, env=environment, check=True, capture_output=True)
    return folder / f"{package.name}-{deb_version(version)}-{release}.{architecture}.rpm"


def _adapted(package: Package) -> Package:
    """Return the package with the files that differ from those of a deb."""
    files = {_MOVED.get(place, place): file for place, file in package.files.items()}
    if package.is_common:
        files["usr/lib/slurmscope/start"] = files["usr/bin/slurmscope"]
        files["usr/bin/slurmscope"] = File(LAUNCHER, 0o755)
    if package.python:
        files["usr/lib/slurmscope/python"] = File(f"{package.python}\n".encode())
    return replace(package, files=files)


def _spec(package: Package, version: str, release: str, tree: Path) -> Iterator[str]:
    yield from (f"Name: {package.name}", f"Version: {deb_version(version)}", f"Release: {release}")
    license_ = _PORTAL_LICENSE if package.python else _LICENSE if package.is_common else "Apache-2.0"
    summary = package.summary[0].upper() + package.summary[1:]
    yield from (f"Summary: {summary}", f"License: {license_}", "AutoReqProv: no")
    yield from _relations(package, version)
    yield from ("%description", *textwrap.wrap(package.text, 79), "%install", f"cp -a {tree}/. %{{buildroot}}/")
    for section, body in rpm(package).items():
        yield f"%{section} -p /bin/sh\n{body}"
    yield from ("%files", "%defattr(-,root,root,-)", *_listed(package, tree))


def _relations(package: Package, version: str) -> Iterator[str]:
    """Yield what the package needs and provides; the user is there before a file belongs to its group."""
    if package.is_common:
        yield from (f"Requires: {_PYTHON}", "Requires(pre): /usr/sbin/useradd, /usr/bin/getent")
        # Since 4.19, rpm makes requirements of the owners of files.
        yield "Provides: user(slurmscope), group(slurmscope)"
        return
    yield f"Requires(pre): slurmscope = {deb_version(version)}"
    yield f"Requires: slurmscope = {deb_version(version)}"
    if package.python:
        major, minor = package.python.split(".")
        exact = f"(python3 >= {package.python} with python3 < {major}.{int(minor) + 1})"
        yield f"Requires: (python{package.python} or {exact})"


def _listed(package: Package, tree: Path) -> Iterator[str]:
    """Yield every folder of ours and every file; edited configuration is kept."""
    for path in sorted(tree.rglob("*")):
        place = path.relative_to(tree).as_posix()
        if path.is_dir():
            if place not in _FOREIGN:
                yield f'%dir "/{place}"'
        elif place in package.private:
            yield f'%attr(0640,root,slurmscope) %config(noreplace) "/{place}"'
        elif place.startswith("usr/share/licenses/"):
            yield f'%license "/{place}"'
        else:
            yield f'{"%config(noreplace) " if place in package.configuration else ""}"/{place}"'
