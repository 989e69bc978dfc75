# SPDX-License-Identifier: Apache-2.0
"""Make a minimal Debian once, with Python and nothing else that slurmscope needs, and keep it for later tests."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.requirements import require_program

STORE = Path(os.environ.get("FRESH_DIR", "/var/tmp/slurmscope-fresh"))


def make_root(suite: str) -> Path:
    """Return the folder of a minimal system of this suite, such as bookworm."""
    mmdebstrap = require_program("mmdebstrap")
    base = STORE / f"packages-{suite}"
    STORE.mkdir(parents=True, exist_ok=True)
    with (STORE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not base.exists():
            _make(mmdebstrap, suite, base)
    return base


def _make(mmdebstrap: str, suite: str, base: Path) -> None:
    making = Path(tempfile.mkdtemp(prefix="making-", dir=STORE))
    argv = [mmdebstrap, "--quiet", "--variant=minbase", "--include=python3", suite, str(making), *_sources(suite)]
    try:
        subprocess.run(argv, check=True, timeout=900)
    except BaseException:
        shutil.rmtree(making)
        raise
    making.rename(base)


def _sources(suite: str) -> list[str]:
    """Return the mirrors of this machine where it is of this suite itself."""
    release = Path("/etc/os-release").read_text(encoding="utf-8")
    files = (Path("/etc/apt/sources.list"), Path("/etc/apt/sources.list.d/debian.sources"))
    own = [str(file) for file in files if file.is_file() and file.stat().st_size]
    return own if f"VERSION_CODENAME={suite}\n" in release else []
