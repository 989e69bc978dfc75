# SPDX-License-Identifier: Apache-2.0
"""Link the groups of sums to their pages, which show the same cluster."""

from __future__ import annotations

from collections.abc import Callable

from slurmscope.model.archive import GroupBy, JobFilter
from slurmscope.portal.pages.context import RequestContext
from slurmscope.portal.views.page_paths import account_path, user_path
from slurmscope.portal.views.queries import render_query


def make_group_link(context: RequestContext, recent: JobFilter, by: GroupBy) -> Callable[[str], str]:
    """Return a function that links the name of a group to its jobs, user or account, of the same cluster."""
    cluster = recent.cluster
    links = {
        GroupBy.CLUSTER: lambda name: f"/jobs{render_query(JobFilter(cluster=name))}",
        GroupBy.USER: lambda name: user_path(name, cluster),
        GroupBy.ACCOUNT: lambda name: account_path(name, cluster),
        GroupBy.PARTITION: lambda name: f"/jobs{render_query(JobFilter(cluster=cluster, partition=name))}",
    }
    return (lambda name: context.base_path + links[by](name)) if by in links else context.make_rule_link(recent)
