# SPDX-License-Identifier: Apache-2.0
"""Serve every page of a job, array or node also under a path that names its cluster, and document these paths.

Routes have the short path only; the cluster is passed separately, so that no page exists under one of the two alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import Any

from slurmscope.portal.scope import AsgiApp, Receive, Send
from slurmscope.reports.page_paths import CLUSTER_PATTERN, parse_path

Document = dict[str, Any]

_NAMED = re.compile(r"(/(?:jobs|nodes)/)(?={)")
"""Where the cluster is in the path of a job or a node."""
_CLUSTER = {
    "name": "cluster",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": f"^{CLUSTER_PATTERN}$"},
    "description": "Name of the cluster.",
}
_SEVERAL = {
    "description": "The viewer has access to several clusters with a job or node of this name.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["error", "choices"],
                "properties": {
                    "error": {"type": "string"},
                    "choices": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "required": ["cluster", "url"],
                            "properties": {"cluster": {"type": "string"}, "url": {"type": "string"}},
                        },
                    },
                },
            }
        }
    },
}


def add_cluster_operations(document: Document) -> Document:
    """Return the document with each operation on one job or node twice: by its name, and by cluster and name."""
    paths: Document = {}
    for path, methods in document["paths"].items():
        paths[path] = methods
        if _NAMED.search(path):
            paths[_NAMED.sub(r"\1{cluster}/", path)] = {
                method: _with_cluster(operation) for method, operation in methods.items()
            }
            for operation in methods.values():
                operation["responses"] = {"300": _SEVERAL, **operation["responses"]}
    return {**document, "paths": paths}


def _with_cluster(operation: Document) -> Document:
    copied = deepcopy(operation)
    copied["operationId"] = f"{operation['operationId']}_of_cluster"
    copied["parameters"] = [_CLUSTER, *operation["parameters"]]
    return copied


_KEY = "slurmscope.cluster"


class ClusterPaths:
    """Remove the cluster from the path of a request, and keep it in the scope."""

    def __init__(self, app: AsgiApp) -> None:
        self._app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Forward the request; the scope is changed in place, because outer layers read the route from it."""
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
