# SPDX-License-Identifier: Apache-2.0
"""Turn readings into metric families: one module per collector, each exporting ``COLLECTOR``."""
