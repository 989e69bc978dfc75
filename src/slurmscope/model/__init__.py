# SPDX-License-Identifier: Apache-2.0
"""Plain immutable data about the cluster, its jobs and reports: no I/O, no clock."""
