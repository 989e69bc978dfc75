# SPDX-License-Identifier: Apache-2.0
"""Generate a cluster: nodes, users, jobs, placement."""
