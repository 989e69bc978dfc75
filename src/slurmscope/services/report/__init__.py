# SPDX-License-Identifier: Apache-2.0
"""Find the jobs that ``slurmscope report`` shows: on this host, or through a portal."""
