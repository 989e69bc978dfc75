# SPDX-License-Identifier: Apache-2.0
"""Make command-line options from declared settings, and translate those of replaced tools."""
