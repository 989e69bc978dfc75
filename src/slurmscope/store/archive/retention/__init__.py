# SPDX-License-Identifier: Apache-2.0
"""Delete what is older than its retention."""
