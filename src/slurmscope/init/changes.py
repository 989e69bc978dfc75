# SPDX-License-Identifier: Apache-2.0
"""Show and write the changes of a plan."""

from __future__ import annotations

import difflib
import grp
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from slurmscope.core.errors import OutputError
from slurmscope.init.answers import role_file
from slurmscope.init.plan import Plan

Changes = Mapping[str, str | None]

_PRIVATE = frozenset({role_file("portal")})
"""New files that only root and the services may read: they may have secrets."""
_GROUP = "slurmscope"


def find_changes(plan: Plan, before: Mapping[str, str]) -> Changes:
    """Return the files that differ from what is there."""
    return {path: text for path, text in plan.files.items() if before.get(path) != text}


def show_changes(changes: Changes, plan: Plan, before: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a unified diff; a new file is compared with the example that it is made of."""
    for path, text in changes.items():
        if text is None:
            yield f"--- {path}: removed"
            continue
        old, name = before.get(path), path
        if old is None:
            old = plan.bases.get(path)
            name = "new file" if old is None else "new file, compared with the example"
        if old == text:
            yield f"+++ {path}: new file, as the example"
            continue
        lines = difflib.unified_diff((old or "").splitlines(), text.splitlines(), name, path, n=1, lineterm="")
        yield from lines


def write_changes(changes: Changes, root: Path) -> None:
    """Write every file in one step; the permissions of those that are there stay."""
    for path, text in changes.items():
        # A file may be a link to where a site keeps its configuration.
        place = Path(os.path.realpath(root / path.lstrip("/")))
        try:
            if text is None:
                place.unlink(missing_ok=True)
            else:
                _make_folder(place.parent)
                _write(place, text.encode(), is_private=path in _PRIVATE)
        except OSError as error:
            raise OutputError(f"cannot write {place}: {error.strerror}") from error


def _make_folder(folder: Path) -> None:
    """Create a folder that services can read, whatever the umask of root is."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir()
        folder.chmod(0o755)


def _write(place: Path, content: bytes, *, is_private: bool) -> None:
    aside = place.with_name(f".{place.name}.new")
    aside.unlink(missing_ok=True)
    # No other user may read it before it has its permissions.
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        _set_permissions(descriptor, place, is_private=is_private)
        os.fsync(descriptor)
    aside.replace(place)


def _set_permissions(descriptor: int, place: Path, *, is_private: bool) -> None:
    """Take those of the file that is there; a new private one is for the group of the services, if that exists."""
    if place.exists():
        status = place.stat()
        os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, status.st_mode & 0o7777)
    elif not is_private:
        os.fchmod(descriptor, 0o644)
    else:
        with suppress(KeyError, PermissionError):
            os.fchown(descriptor, -1, grp.getgrnam(_GROUP).gr_gid)
            os.fchmod(descriptor, 0o640)
