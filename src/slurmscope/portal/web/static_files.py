# SPDX-License-Identifier: Apache-2.0
"""Serve style sheets, scripts and images from memory, under addresses that change with their content.

The content of an address never changes, so browsers may cache it for a year. Files are read once at the start:
request paths never reach the disk.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parents[1] / "static"

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_CACHE_CONTROL = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticFile:
    """Hold one file, plain and compressed."""

    address: str
    content_type: str
    body: bytes
    compressed: bytes


class StaticFiles:
    """Find files by name and by address; addresses contain a hash of the content."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.suffix in _TYPES}
        self._by_name: Mapping[str, StaticFile] = {name: _read_static(name, path) for name, path in files.items()}
        self._by_address = {file.address: file for file in self._by_name.values()}

    def address(self, name: str) -> str:
        """Return the address of a file; an unknown name is an error in a template."""
        return f"/static/{self._by_name[name].address}"

    async def serve(self, request: Request) -> Response:
        """Send a file; not in a thread, so that the style of error pages does not wait for one."""
        file = self._by_address.get(request.path_params["address"])
        if file is None:
            raise HTTPException(404)
        headers = {"Cache-Control": _CACHE_CONTROL, "Content-Type": file.content_type, "Vary": "Accept-Encoding"}
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(file.body, headers=headers)
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"})


def _read_static(name: str, path: Path) -> StaticFile:
    body = path.read_bytes()
    return StaticFile(
        address=f"{hashlib.sha256(body).hexdigest()[:12]}/{name}",
        content_type=_TYPES[path.suffix],
        body=body,
        compressed=gzip.compress(body, mtime=0),
    )
