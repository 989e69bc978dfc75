# SPDX-License-Identifier: Apache-2.0
"""Generate a cluster: machines, users, jobs and statistics."""
