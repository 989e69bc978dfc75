# SPDX-License-Identifier: Apache-2.0
"""Serve the metrics page over HTTP with the standard library only, robust against any client."""
