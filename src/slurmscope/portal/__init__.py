# SPDX-License-Identifier: Apache-2.0
"""Serve pages about jobs to people."""
