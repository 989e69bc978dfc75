# SPDX-License-Identifier: Apache-2.0
"""A push inbox that answers as Prometheus' Pushgateway does."""
