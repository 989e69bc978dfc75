# SPDX-License-Identifier: Apache-2.0
"""The web layer of the portal: server, limits, templates and tables."""
