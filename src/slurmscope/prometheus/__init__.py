# SPDX-License-Identifier: Apache-2.0
"""Query Prometheus or a compatible server."""
