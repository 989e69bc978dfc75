# SPDX-License-Identifier: Apache-2.0
"""Set what holds for every test."""

from hypothesis import settings

# Machines are shared and slow: how long one example takes says nothing.
settings.register_profile("slurmscope", deadline=None)
settings.load_profile("slurmscope")
