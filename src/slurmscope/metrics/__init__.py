# SPDX-License-Identifier: Apache-2.0
"""Metric families as plain data, and their text formats."""
