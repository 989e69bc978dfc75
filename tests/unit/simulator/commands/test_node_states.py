# SPDX-License-Identifier: Apache-2.0
"""Check both forms of a node's state against Slurm's own functions."""

from __future__ import annotations

import pytest

from slurmscope.simulator.commands.lists import complete_state
from slurmscope.slurm.states import node_state_text

# What node_state_string_complete and node_state_string of Slurm 22.05.8 return, in lower case, for the states that a
# simulated node can be in. The first column is also the input: base state and flags.
SLURM_SAYS = """
allocated allocated
allocated+cloud+not_responding+powering_up allocated#
allocated+cloud+power_down allocated!
allocated+cloud+powered_down allocated~
allocated+cloud+powering_down allocated%
allocated+completing allocated+
allocated+drain draining
allocated+drain+invalid_reg inval
allocated+drain+maintenance draining$
allocated+drain+not_responding draining*
allocated+dynamic_norm allocated
allocated+fail failing
allocated+maintenance allocated$
allocated+not_responding allocated*
allocated+perfctrs allocated
allocated+planned allocated
allocated+reboot_issued allocated^
allocated+reboot_requested allocated@
allocated+reserved allocated
down down
down+cloud+powered_down down~
down+drain drained
down+maintenance down$
down+not_responding down*
down+reboot_issued reboot^
error ?
future future
idle idle
idle+cloud+not_responding+powering_up idle#
idle+cloud+power_down idle!
idle+cloud+powered_down idle~
idle+cloud+powering_down idle%
idle+completing completing
idle+drain drained
idle+drain+invalid_reg inval
idle+drain+maintenance drained$
idle+drain+not_responding drained*
idle+dynamic_norm idle
idle+fail fail
idle+maintenance maint
idle+not_responding idle*
idle+perfctrs perfctrs
idle+planned planned
idle+reboot_issued reboot^
idle+reboot_requested reboot
idle+reserved reserved
mixed mixed
mixed+cloud+not_responding+powering_up mixed#
mixed+cloud+power_down mixed!
mixed+cloud+powered_down mixed~
mixed+cloud+powering_down mixed%
mixed+completing completing
mixed+drain draining
mixed+drain+invalid_reg inval
mixed+drain+maintenance draining$
mixed+drain+not_responding draining*
mixed+dynamic_norm mixed
mixed+maintenance mixed$
mixed+not_responding mixed*
mixed+perfctrs mixed
mixed+planned mixed-
mixed+reboot_issued mixed^
mixed+reboot_requested mixed@
mixed+reserved mixed
unknown unknown
"""


@pytest.mark.parametrize(("complete", "long"), [line.split() for line in SLURM_SAYS.split("\n") if line])
def test_states_are_written_as_slurm_writes_them(complete: str, long: str) -> None:
    base, *flags = complete.split("+")
    shuffled = sorted(flags, reverse=True)
    assert (complete, long) == (complete_state(base, shuffled), node_state_text(base, frozenset(shuffled)))
