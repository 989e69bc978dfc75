# SPDX-License-Identifier: Apache-2.0
"""What both exporters share: collectors, readings, the metrics page and its outputs."""
