# SPDX-License-Identifier: Apache-2.0
"""Make up a cluster that answers like Slurm's commands, for demos, benchmarks and load tests.

Start at :func:`slurmscope.simulate.cluster.cluster.simulate` for the cluster and at
:func:`slurmscope.simulate.commands.executables.write_stand_ins` for executables that answer in Slurm's place.
This file imports nothing on purpose: a stand-in pays for every import at every call.
"""
