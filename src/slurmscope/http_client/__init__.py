# SPDX-License-Identifier: Apache-2.0
"""Send HTTP requests within a deadline and a size: the one client of slurmscope."""
