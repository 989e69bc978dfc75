# SPDX-License-Identifier: Apache-2.0
"""Find the cgroups of jobs and read what they use, in cgroup v1 and v2."""
