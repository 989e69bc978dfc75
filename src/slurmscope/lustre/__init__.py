# SPDX-License-Identifier: Apache-2.0
"""Lustre throughput by account, user and program."""
