# SPDX-License-Identifier: Apache-2.0
"""Run exporters, recorder and portal in one process, also over a simulated cluster."""
