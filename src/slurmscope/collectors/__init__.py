# SPDX-License-Identifier: Apache-2.0
"""Turn readings into metric families: one module per subject, each exports ``COLLECTOR``."""
