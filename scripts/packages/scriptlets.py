# SPDX-License-Identifier: Apache-2.0
"""Write the shell scripts that run when a package is installed, upgraded and removed."""

from __future__ import annotations

from scripts.packages.roles import FOLDER, Package
from slurmscope.init.plan import JOB_RULES, PROMETHEUS, RULES, SCRAPE

_USER = """getent passwd slurmscope >/dev/null || useradd --system --user-group --no-create-home \\
    --home-dir /nonexistent --shell /usr/sbin/nologin slurmscope
"""
_LEFT = """if rmdir /var/lib/slurmscope 2>/dev/null || [ ! -e /var/lib/slurmscope ]; then
    ! getent passwd slurmscope >/dev/null || userdel slurmscope
else
    echo "slurmscope: kept data in /var/lib/slurmscope, and its user slurmscope" >&2
fi
# Files of the roles are removed with their packages, after this one.
left=$(find /etc/slurmscope -type f ! -path '/etc/slurmscope/prometheus/*' 2>/dev/null |
    grep -vxE '/etc/slurmscope/(node|cluster|portal|mail)\\.toml' | tr '\\n' ' ' || true)
[ -z "$left" ] || echo "slurmscope: kept $left" >&2
rmdir /etc/slurmscope 2>/dev/null || true
"""
# An upgrade leaves a folder that the new release does not have, if it has compiled modules.
_EMPTY = f"find /{FOLDER} -depth -type d -empty -delete 2>/dev/null || true\n"
_WRITTEN = """rm -f /etc/systemd/system/{unit}.d/init.conf
if ! rmdir /etc/systemd/system/{unit}.d 2>/dev/null && [ -e /etc/systemd/system/{unit}.d ]; then
    echo "slurmscope: kept /etc/systemd/system/{unit}.d" >&2
fi
"""
_PROMETHEUS = f"""rm -f {SCRAPE} {RULES} {JOB_RULES}
rmdir {PROMETHEUS} 2>/dev/null || true
"""


def _if_systemd(command: str) -> str:
    return f"[ ! -d /run/systemd/system ] || {command}\n"


RELOAD = _if_systemd("systemctl daemon-reload || true")


def make_user(package: Package) -> str:
    """Return commands that create the service user, before configuration belongs to it."""
    return _USER if package.is_common else ""


def protect(package: Package) -> str:
    """Return commands that let only root and the service read files that may have secrets."""
    return "".join(f"chgrp slurmscope /{path}\nchmod 0640 /{path}\n" for path in package.private)


def restart(package: Package) -> str:
    """Return commands that start running services again, with the new release."""
    return "".join(_if_systemd(f"systemctl try-restart {unit} || true") for unit in package.units)


def stop(package: Package) -> str:
    """Return commands that end services, and start them no more."""
    lines = [f"systemctl --no-reload disable {unit} >/dev/null 2>&1 || true\n" for unit in package.units]
    return "".join([*(_if_systemd(f"systemctl stop {unit} || true") for unit in package.units), *lines])


def remove_user(package: Package) -> str:
    """Return commands that remove the user, unless there is data of it, and say what is left."""
    return _LEFT + _EMPTY if package.is_common else ""


def remove_written(package: Package) -> str:
    """Return commands that remove what ``slurmscope init`` wrote beside the files of the package."""
    text = "".join(_WRITTEN.format(unit=unit) for unit in package.units if unit.endswith(".service"))
    return text + (_PROMETHEUS if package.name == "slurmscope-cluster" else "")


def debian(package: Package) -> dict[str, str]:
    """Return the scripts of a deb by name. Services are neither enabled nor started: ports are opened knowingly."""
    compiled = any(path.startswith(FOLDER) for path in package.files)
    configure = make_user(package)
    if compiled:
        configure += f"! command -v py3compile >/dev/null || py3compile -p {package.name} /{FOLDER}\n"
    first = protect(package)
    after = f'if [ -z "$2" ]; then\n{first}fi\n' if first else ""
    if package.units:
        after += f'{RELOAD}if [ -n "$2" ]; then\n{restart(package)}fi\n'
    clean = f"! command -v py3clean >/dev/null || py3clean -p {package.name}\n" if compiled else ""
    ending = f'if [ "$1" = remove ]; then\n{stop(package)}fi\n' if package.units else ""
    purge = remove_written(package) + remove_user(package)
    left = f'if [ "$1" = purge ]; then\n{purge}fi\n' if purge else ""
    bodies = {
        "postinst": f'if [ "$1" = configure ]; then\n{configure}{after}fi\n',
        "prerm": clean + ending,
        "postrm": (RELOAD if package.units else "") + left,
    }
    return {name: f"#!/bin/sh\nset -e\n{body}" for name, body in bodies.items() if body}


def rpm(package: Package) -> dict[str, str]:
    """Return the scripts of an rpm by section; $1 is how many of it are installed afterwards."""
    compiled = any(path.startswith(FOLDER) for path in package.files)
    every = "for python in /usr/bin/python3.1[1-9]; do\n"
    build = (
        f'{every}    [ ! -x "$python" ] || "$python" -I -m compileall -q /{FOLDER} || true\ndone\n' if compiled else ""
    )
    clean = (
        f"    find /{FOLDER} -depth -name __pycache__ -type d -exec rm -rf {{}} + 2>/dev/null || true\n"
        if compiled
        else ""
    )
    ending = clean + stop(package)
    bodies = {
        "pre": make_user(package),
        "post": build + (RELOAD if package.units else ""),
        # Only at the end: in an upgrade, this script of the old release runs after the new one was compiled.
        "preun": f'if [ "$1" = 0 ]; then\n{ending}fi\n' if ending else "",
        "postun": (f'{RELOAD}if [ "$1" -ge 1 ]; then\n{restart(package)}fi\n' if package.units else "")
        + f'if [ "$1" = 0 ]; then\n{remove_written(package)}{remove_user(package)}fi\n',
    }
    return {name: body for name, body in bodies.items() if body}
