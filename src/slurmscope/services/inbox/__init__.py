# SPDX-License-Identifier: Apache-2.0
"""Accept metrics that batch jobs and scripts push, as Prometheus' Pushgateway does."""
