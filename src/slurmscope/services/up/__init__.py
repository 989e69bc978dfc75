# SPDX-License-Identifier: Apache-2.0
"""Run everything in one process: recorder, collectors, reporter and portal, also over a simulated cluster."""
