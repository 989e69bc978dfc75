# SPDX-License-Identifier: Apache-2.0
"""Write and parse the paths of pages, which may name the cluster.

::

    /jobs/12/report.pdf    /jobs/alpha/12/report.pdf    /arrays/alpha/12    /nodes/alpha/n1

Job IDs and node names repeat across clusters. A path without a cluster is short to type and to send; a path with one
names one job. No cluster clashes with a word of a path: a name is one only before a job ID, which no such word is, or
before the name of a node. Users and accounts are those of all clusters: ``/users/ada?cluster=alpha`` selects one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode

CLUSTER_PATTERN = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
JOB_PATTERN = r"[0-9]{1,10}([_+][0-9]{1,10}|_\[[0-9,:%.-]{1,4000}\])?"
"""The ID of a job, of a task of an array, of a part of a heterogeneous job, or of the pending tasks of an array."""
_OF_JOB = re.compile(
    rf"(?P<kind>/(?:api/v[12]/)?jobs|/arrays|/mail|/pdf|/plot|/pie)/(?P<cluster>{CLUSTER_PATTERN})(?P<rest>/{JOB_PATTERN}(?:/.*)?)",
    re.ASCII | re.DOTALL,
)
_OF_NODE = re.compile(
    rf"(?P<kind>/(?:api/v2/)?nodes)/(?P<cluster>{CLUSTER_PATTERN})(?P<rest>/(?!charts\.json\Z|charts/[^/]+\.svg\Z)[^/]+(?:/.*)?)",
    re.ASCII | re.DOTALL,
)
_SHORT = re.compile(
    r"(?P<kind>/(?:api/v[12]/)?jobs|/arrays|/mail|/pdf|/plot|/pie|/(?:api/v2/)?nodes)(?P<rest>/.+)", re.DOTALL
)
_IS_CLUSTER = re.compile(rf"{CLUSTER_PATTERN}\Z", re.ASCII)


class PagePath(NamedTuple):
    """The cluster that a path names, empty if it names none, and the same path without it."""

    cluster: str
    short: str


def parse_path(path: str) -> PagePath:
    """Split the cluster from a path; any other path is returned as it is."""
    found = _OF_JOB.fullmatch(path) or _OF_NODE.fullmatch(path)
    return PagePath(found["cluster"], found["kind"] + found["rest"]) if found else PagePath("", path)


def add_cluster(path: str, cluster: str) -> str:
    """Return the path of the same page in a cluster; empty if it is not about one job, array or node."""
    found = _SHORT.fullmatch(path)
    return f"{found['kind']}/{cluster}{found['rest']}" if found and is_cluster(cluster) else ""


def is_cluster(text: str) -> bool:
    """Return whether this can be the name of a cluster in a path."""
    return _IS_CLUSTER.match(text) is not None


def shown_cluster(cluster: str, clusters: Sequence[str]) -> str:
    """Return the cluster that a path names: none while there is only one, or if its name does not fit into a path."""
    return cluster if len(clusters) > 1 and is_cluster(cluster) else ""


def name_job(shown_id: str, cluster: str = "") -> str:
    """Return how a job is named in text and in forms: 12, or alpha/12."""
    return f"{cluster}/{shown_id}" if cluster else shown_id


def parse_job(text: str) -> tuple[str, str]:
    """Split the name of a job into its cluster, empty if it has none, and its ID, which is not checked."""
    cluster, slash, shown_id = text.partition("/")
    return (cluster, shown_id) if slash and is_cluster(cluster) else ("", text)


def job_path(shown_id: str, cluster: str = "") -> str:
    """Return the path of a job's page; pending tasks of an array are shown on the page of the array."""
    array_id, bracket, _ = shown_id.partition("_[")
    return array_path(array_id, cluster) if bracket else f"{_begin('/jobs', cluster)}/{quote(shown_id, safe='+')}"


def array_path(array_id: int | str, cluster: str = "") -> str:
    return f"{_begin('/arrays', cluster)}/{quote(str(array_id), safe='')}"


def node_path(name: str, cluster: str = "") -> str:
    return f"{_begin('/nodes', cluster)}/{quote(name, safe='')}"


def user_path(name: str, cluster: str = "") -> str:
    """Return the path of a user's page, of all clusters or one."""
    return f"/users/{quote(name, safe='')}{_select(cluster)}"


def account_path(name: str, cluster: str = "") -> str:
    """Return the path of an account's page, of all clusters or one."""
    return f"/accounts/{quote(name, safe='')}{_select(cluster)}"


def _select(cluster: str) -> str:
    return f"?{urlencode({'cluster': cluster})}" if cluster else ""


def _begin(kind: str, cluster: str) -> str:
    return f"{kind}/{cluster}" if cluster else kind
