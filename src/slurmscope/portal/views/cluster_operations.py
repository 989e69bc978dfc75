# SPDX-License-Identifier: Apache-2.0
"""Add to an OpenAPI document the paths that name the cluster of a job, and the answer that lets a client choose one."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from slurmscope.portal.views.page_paths import CLUSTER_PATTERN

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
