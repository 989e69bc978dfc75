# SPDX-License-Identifier: Apache-2.0
"""Check the three forms of a node's state against Slurm's own functions."""

from __future__ import annotations

import pytest

from slurmscope.simulator.commands.node_fields import compact_state, complete_state, long_state

# What node_state_string_complete, node_state_string and node_state_string_compact of Slurm 22.05.8 return, in lower
# case, for the states that a simulated node can be in. The first column is also the input: base state and flags.
SLURM_SAYS = """
allocated allocated alloc
allocated+cloud+not_responding+powering_up allocated# alloc#
allocated+cloud+power_down allocated! alloc!
allocated+cloud+powered_down allocated~ alloc~
allocated+cloud+powering_down allocated% alloc%
allocated+completing allocated+ alloc+
allocated+drain draining drng
allocated+drain+invalid_reg inval inval
allocated+drain+maintenance draining$ drng$
allocated+drain+not_responding draining* drng*
allocated+dynamic_norm allocated alloc
allocated+fail failing failg
allocated+maintenance allocated$ alloc$
allocated+not_responding allocated* alloc*
allocated+perfctrs allocated alloc
allocated+planned allocated alloc
allocated+reboot_issued allocated^ alloc^
allocated+reboot_requested allocated@ alloc@
allocated+reserved allocated alloc
down down down
down+cloud+powered_down down~ down~
down+drain drained drain
down+maintenance down$ down$
down+not_responding down* down*
down+reboot_issued reboot^ boot^
error ? ?
future future futr
idle idle idle
idle+cloud+not_responding+powering_up idle# idle#
idle+cloud+power_down idle! idle!
idle+cloud+powered_down idle~ idle~
idle+cloud+powering_down idle% idle%
idle+completing completing comp
idle+drain drained drain
idle+drain+invalid_reg inval inval
idle+drain+maintenance drained$ drain$
idle+drain+not_responding drained* drain*
idle+dynamic_norm idle idle
idle+fail fail fail
idle+maintenance maint maint
idle+not_responding idle* idle*
idle+perfctrs perfctrs npc
idle+planned planned plnd
idle+reboot_issued reboot^ boot^
idle+reboot_requested reboot boot
idle+reserved reserved resv
mixed mixed mix
mixed+cloud+not_responding+powering_up mixed# mix#
mixed+cloud+power_down mixed! mix!
mixed+cloud+powered_down mixed~ mix~
mixed+cloud+powering_down mixed% mix%
mixed+completing completing comp
mixed+drain draining drng
mixed+drain+invalid_reg inval inval
mixed+drain+maintenance draining$ drng$
mixed+drain+not_responding draining* drng*
mixed+dynamic_norm mixed mix
mixed+fail fail fail
mixed+maintenance mixed$ mix$
mixed+not_responding mixed* mix*
mixed+perfctrs mixed mix
mixed+planned mixed- mix-
mixed+reboot_issued mixed^ mix^
mixed+reboot_requested mixed@ mix@
mixed+reserved mixed mix
unknown unknown unk
"""


@pytest.mark.parametrize(("complete", "long", "compact"), [line.split() for line in SLURM_SAYS.split("\n") if line])
def test_states_are_written_as_slurm_writes_them(complete: str, long: str, compact: str) -> None:
    base, *flags = complete.split("+")
    shuffled = sorted(flags, reverse=True)
    assert (complete, long, compact) == (
        complete_state(base, shuffled),
        long_state(base, shuffled),
        compact_state(base, shuffled),
    )
