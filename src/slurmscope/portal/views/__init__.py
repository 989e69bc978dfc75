# SPDX-License-Identifier: Apache-2.0
"""Prepare data for the pages, without I/O."""
