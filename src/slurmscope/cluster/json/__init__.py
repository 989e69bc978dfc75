# SPDX-License-Identifier: Apache-2.0
"""Read jobs and nodes as JSON, by command or by slurmrestd.

One reader serves every version from v0.0.38 (Slurm 22.05) to v0.0.45 (26.05): the fields that we read have
kept their names but for three, and a field is accepted in each of the shapes it ever had.

=========  ===============  =============================================================================
version    first in Slurm   what changed in the fields that we read
=========  ===============  =============================================================================
v0.0.38    22.05            ``state`` of a node is one word, beside ``state_flags``; ``free_memory``;
                            a number that is not set is null, 2^32 - 2 or -2
v0.0.39    23.02            ``state`` of a node is a list, ``free_memory`` is now ``free_mem``; many
                            numbers are ``{"set": …, "infinite": …, "number": …}``
v0.0.40    23.11            ``job_state`` is a list, times are such objects too, ``cpu_load`` is plain
v0.0.41 …  24.05 …          nothing that we read; v0.0.42 and older do not report that a node is blocked
v0.0.45    26.05            the same
=========  ===============  =============================================================================

Only the fields that are named in the records below are decoded, everything else is skipped unread: nothing
that users write, such as the name of a job, is parsed.
"""
