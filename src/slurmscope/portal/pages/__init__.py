# SPDX-License-Identifier: Apache-2.0
"""Implement the routes of the portal: pages and API."""
