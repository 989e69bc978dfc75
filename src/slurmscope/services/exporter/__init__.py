# SPDX-License-Identifier: Apache-2.0
"""Run an exporter: shared readings, the page, self metrics, settings, and checks for the doctor."""
