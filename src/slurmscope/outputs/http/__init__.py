# SPDX-License-Identifier: Apache-2.0
"""Serve the page over HTTP with the standard library alone, and stay up whatever clients do."""
