# SPDX-License-Identifier: Apache-2.0
"""Read the GPUs of a node: driver values, processes, and which devices a job may open."""
