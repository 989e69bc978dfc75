# SPDX-License-Identifier: Apache-2.0
"""Serve every page of a job, array or node also under a path that names its cluster.

Routes have the short path only; the cluster is passed beside it, so that no page exists under one of the two alone.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.portal.views.page_paths import parse_path

_KEY = "slurmscope.cluster"


class ClusterPaths:
    """Remove the cluster from the path of a request, and keep it in the scope."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request; the scope is changed in place, because outer layers read the route from it."""
        if scope["type"] == "http":
            base = _base_path(scope)
            found = parse_path(scope["path"][len(base) :])
            scope["path"], scope[_KEY] = base + found.short, found.cluster
        await self._app(scope, receive, send)


def requested_cluster(scope: Mapping[str, Any]) -> str:
    """Return the cluster that the path of a request names; empty if it names none."""
    return str(scope.get(_KEY, ""))


def _base_path(scope: Mapping[str, Any]) -> str:
    base: str = scope.get("root_path", "")
    return base if base and scope["path"].startswith(f"{base}/") else ""
