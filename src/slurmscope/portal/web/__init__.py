# SPDX-License-Identifier: Apache-2.0
"""Serve pages safely: server, limits, headers, templates, static files."""
