# SPDX-License-Identifier: Apache-2.0
"""Export what collectors read under the metric names of older exporters."""
