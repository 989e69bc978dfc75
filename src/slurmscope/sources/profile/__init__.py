# SPDX-License-Identifier: Apache-2.0
"""Read the events that the profiling plugin of Slurm sends."""
