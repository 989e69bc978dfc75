# SPDX-License-Identifier: Apache-2.0
"""Arrange data as the pages show it, without I/O."""
