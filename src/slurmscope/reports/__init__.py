# SPDX-License-Identifier: Apache-2.0
"""Find and make reports of jobs, from the archive, accounting and time series."""
