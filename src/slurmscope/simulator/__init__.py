# SPDX-License-Identifier: Apache-2.0
"""Simulate a Slurm cluster and its commands, for demos, benchmarks and load tests.

Start at :func:`slurmscope.simulator.cluster.cluster.simulate` for the cluster and at
:func:`slurmscope.simulator.commands.executables.write_fake_commands` for executables that replace Slurm's commands.
This file imports nothing on purpose: a fake command pays for every import at every call.
"""
