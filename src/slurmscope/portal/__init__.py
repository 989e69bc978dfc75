# SPDX-License-Identifier: Apache-2.0
"""Serve web pages about jobs."""
