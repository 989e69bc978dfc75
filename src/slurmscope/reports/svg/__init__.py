# SPDX-License-Identifier: Apache-2.0
"""Draw charts, heat maps and other figures as SVG."""
