# SPDX-License-Identifier: Apache-2.0
"""Generate ended jobs with their accounting and time series."""
