# SPDX-License-Identifier: Apache-2.0
"""Find the cgroups of jobs and read what they use, in cgroup v1 and v2."""

from slurmscope.sources.cgroup.folders import Members
from slurmscope.sources.cgroup.job import JobCgroup
from slurmscope.sources.cgroup.layout import CgroupLayout, LayoutKind, detect_layout
from slurmscope.sources.cgroup.tree import CgroupTree, TreeHealth

__all__ = ["CgroupLayout", "CgroupTree", "JobCgroup", "LayoutKind", "Members", "TreeHealth", "detect_layout"]
