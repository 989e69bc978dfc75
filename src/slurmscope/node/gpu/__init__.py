# SPDX-License-Identifier: Apache-2.0
"""Read GPUs, and attribute them to jobs."""
