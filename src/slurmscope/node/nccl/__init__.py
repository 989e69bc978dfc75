# SPDX-License-Identifier: Apache-2.0
"""Read what NCCL reports of the collective operations of jobs."""
