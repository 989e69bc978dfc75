# SPDX-License-Identifier: Apache-2.0
"""Keep samples on one machine that has no Prometheus."""
