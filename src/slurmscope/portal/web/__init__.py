# SPDX-License-Identifier: Apache-2.0
"""Serve the pages: HTTP server, middleware, templates, static files."""
