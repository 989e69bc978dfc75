# SPDX-License-Identifier: Apache-2.0
"""Identify who sends a request, and reject those without access."""
