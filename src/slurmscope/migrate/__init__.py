# SPDX-License-Identifier: Apache-2.0
"""Find what dashboards would lose when a replaced exporter is switched off."""
