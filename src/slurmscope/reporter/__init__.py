# SPDX-License-Identifier: Apache-2.0
"""Archive ended jobs, and delete what is older than its retention."""
