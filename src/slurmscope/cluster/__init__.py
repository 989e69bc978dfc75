# SPDX-License-Identifier: Apache-2.0
"""The cluster exporter: one file per subject, with its command, parser, record and metrics."""
