# SPDX-License-Identifier: Apache-2.0
"""Run shell commands as root on a throw-away overlay of this machine, or of another root folder.

It discards all they write, install and start.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from lab.requirements import SEARCH_PATH, find_program

# Everything is written to memory. The upper layer cannot be on the root file system where that is an overlay itself.
ENTER = """
set -eu
mount -t tmpfs tmpfs "$SANDBOX"
mkdir "$SANDBOX/upper" "$SANDBOX/work" "$SANDBOX/root"
mount -t overlay overlay -o "lowerdir=$SANDBOX_BASE,upperdir=$SANDBOX/upper,workdir=$SANDBOX/work" "$SANDBOX/root"
for folder in dev sys; do mount --rbind "/$folder" "$SANDBOX/root/$folder"; done
mount -t proc proc "$SANDBOX/root/proc"
for folder in $SANDBOX_FOLDERS; do mkdir -p "$SANDBOX/root$folder"; mount --bind "$folder" "$SANDBOX/root$folder"; done
install -m 0755 "$SANDBOX_SYSTEMCTL" "$SANDBOX/root/usr/local/bin/systemctl"
script=$(cat)
# Not by chroot alone: containers that start in the sandbox enter the root of its mount namespace.
cd "$SANDBOX/root"
pivot_root . .
umount --lazy .
exec chroot . /bin/bash -euo pipefail -x -c "cd $SANDBOX_CLONE; $script"
"""

# Inside of a chroot no systemd runs. Units are checked by systemd where it is installed, and their command started as
# their user with their directories and capabilities.
SYSTEMCTL = r"""#!/bin/bash
set -euo pipefail
unit() { find /etc/systemd/system /usr/lib/systemd/system -name "$1.service" 2>/dev/null | head -n 1; }
value() { sed -n "s/^$2=//p" "$(unit "$1")" | tail -n 1; }
start() {
    local user words capabilities
    user=$(value "$1" User)
    if command -v systemd-analyze >/dev/null; then
        complaints=$(systemd-analyze verify --man=no "$(unit "$1")" 2>&1 | grep -F "$1" || true)
        [ -z "$complaints" ] || { echo "$complaints" >&2; exit 1; }
    fi
    [ -z "$(value "$1" StateDirectory)" ] || install -d -o "$user" -g "$user" "/var/lib/$(value "$1" StateDirectory)"
    [ -z "$(value "$1" RuntimeDirectory)" ] || install -d -o "$user" -g "$user" "/run/$(value "$1" RuntimeDirectory)"
    capabilities=$(value "$1" AmbientCapabilities | tr 'A-Z ' 'a-z,' | sed 's/cap_/+/g')
    read -r -a words <<< "$(value "$1" ExecStart)"
    setpriv --reuid "$user" --regid "$user" --init-groups --inh-caps "${capabilities:--all}" \
        --ambient-caps "${capabilities:--all}" "${words[@]}" >"/run/$1.log" 2>&1 </dev/null &
    echo $! >"/run/$1.pid"
}
is_active() { [ -e "/run/$1.pid" ] && kill -0 "$(cat "/run/$1.pid")" 2>/dev/null; }
# What Ansible asks before and after it changes something.
show() {
    [ -n "$(unit "$1")" ] || { echo LoadState=not-found; return; }
    is_active "$1" && active=active || active=inactive
    [ -e "/run/$1.enabled" ] && enabled=enabled || enabled=disabled
    printf 'Id=%s.service\nLoadState=loaded\nActiveState=%s\nUnitFileState=%s\n' "$1" "$active" "$enabled"
}
stop() { ! is_active "$1" || kill "$(cat "/run/$1.pid")"; tail --pid="$(cat "/run/$1.pid")" -f /dev/null; }
case "$*" in
    daemon-reload | "reload prometheus") ;;
    "enable --now "*) start "$3" ;;
    "restart "*) stop "$2"; start "$2" ;;
    "start "*) start "$2" ;;
    "disable --now "*) for name in "${@:3}"; do ! [ -e "/run/$name.pid" ] || stop "$name"; done ;;
    "enable "*) touch "/run/$2.enabled" ;;
    "show "*) show "$2" ;;
    "is-enabled "*) [ -e "/run/${2%.service}.enabled" ] && echo enabled || { echo disabled; exit 1; } ;;
    *) echo "systemctl $*: not known here" >&2; exit 1 ;;
esac
"""


# To the agent, the sandbox is a container with a PID namespace of its own.
HIDDEN_BY_SANDBOX = {
    "PID namespace",
    *(f"source process{what}" for what in ("es", "_io", "_files", "_environment")),
}


def tolerate_sandbox(script: str) -> str:
    """Let a script go on after ``slurmscope doctor node``, which reports what the sandbox hides."""
    return re.sub(r"(?m)^slurmscope doctor node.*", r"\g<0> || test $? = 1", script)


def failed_checks(output: str) -> set[str]:
    """Return the names of the checks of ``slurmscope doctor`` that failed."""
    return set(re.findall(r"(?m)^failed  ([^:]+):", output))


def run_as_root(
    script: str,
    folder: Path,
    *,
    clone: Path,
    environment: Mapping[str, str],
    visible: Iterable[Path] = (),
    base: Path = Path("/"),
) -> subprocess.CompletedProcess[str]:
    """Run a script in the sandbox, in the folder of the clone; it ends with the first command that fails.

    ``folder`` is scratch space. ``visible`` folders are the real ones: daemons that run outside are reached there.
    ``base`` is the root folder that the sandbox begins with.
    """
    root = folder / "sandbox"
    root.mkdir()
    systemctl = folder / "systemctl"
    systemctl.write_text(SYSTEMCTL, encoding="utf-8")
    variables = {
        "PATH": SEARCH_PATH,
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "SANDBOX": str(root),
        "SANDBOX_BASE": str(base),
        "SANDBOX_CLONE": shlex.quote(str(clone)),
        "SANDBOX_FOLDERS": " ".join(map(str, (clone, *visible))),
        "SANDBOX_SYSTEMCTL": str(systemctl),
        **environment,
    }
    # In a name space of processes of its own: whatever was started ends with it.
    unshare = find_program("unshare", "util-linux")
    argv = [unshare, "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", ENTER]
    try:
        return subprocess.run(
            argv, input=script, capture_output=True, text=True, env=variables, timeout=600, check=False
        )
    finally:
        shutil.rmtree(root)
