# SPDX-License-Identifier: Apache-2.0
"""Render reports of jobs: terminal, HTML, PDF, JSON."""
