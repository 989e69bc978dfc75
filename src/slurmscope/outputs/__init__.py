# SPDX-License-Identifier: Apache-2.0
"""Bring pages to those who read them: over HTTP, into a file, or to a gateway."""
