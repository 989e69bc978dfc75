# SPDX-License-Identifier: Apache-2.0
"""Make job reports from accounting records and time series."""
