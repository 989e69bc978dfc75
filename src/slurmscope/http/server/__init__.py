# SPDX-License-Identifier: Apache-2.0
"""Serve metrics pages: deadlines, limits, TLS and passwords."""
