# SPDX-License-Identifier: Apache-2.0
"""What every part of slurmscope stands on: settings, errors, logs, units, Slurm's notations, clocks and threads."""
