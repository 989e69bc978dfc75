# SPDX-License-Identifier: Apache-2.0
"""Answer the routes of the portal: pages and API."""
