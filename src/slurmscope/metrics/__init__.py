# SPDX-License-Identifier: Apache-2.0
"""Metric families, the guard that keeps pages valid, and the text formats of Prometheus."""
