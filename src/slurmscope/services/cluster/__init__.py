# SPDX-License-Identifier: Apache-2.0
"""Wire the cluster exporter: which command feeds which reading, and what is counted between readings."""
