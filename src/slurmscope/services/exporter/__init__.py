# SPDX-License-Identifier: Apache-2.0
"""Run an exporter: shared readings, the metrics page, metrics about itself, settings, and checks."""
