# SPDX-License-Identifier: Apache-2.0
"""Archive the jobs that ended, and delete what is older than its retention."""
