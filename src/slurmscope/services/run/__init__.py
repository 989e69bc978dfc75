# SPDX-License-Identifier: Apache-2.0
"""Run a command, measure it with all its descendants, and report what it used."""
