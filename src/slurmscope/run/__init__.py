# SPDX-License-Identifier: Apache-2.0
"""Run a command and report what it used."""
