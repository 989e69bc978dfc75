# SPDX-License-Identifier: Apache-2.0
"""Read what the kernel tells of processes."""
