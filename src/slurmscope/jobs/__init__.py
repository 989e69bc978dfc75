# SPDX-License-Identifier: Apache-2.0
"""One job as people see it: its record, series, summary, findings, advice and failure."""
