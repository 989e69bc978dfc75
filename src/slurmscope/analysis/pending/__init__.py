# SPDX-License-Identifier: Apache-2.0
"""Explain why a job is pending, and what would start it sooner."""
