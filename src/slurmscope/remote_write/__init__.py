# SPDX-License-Identifier: Apache-2.0
"""Send samples by Prometheus' remote write."""
