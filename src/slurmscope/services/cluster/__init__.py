# SPDX-License-Identifier: Apache-2.0
"""Run the cluster exporter: its readings, and what is counted from one reading to the next."""
