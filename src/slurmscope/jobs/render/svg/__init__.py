# SPDX-License-Identifier: Apache-2.0
"""Draw charts as SVG that needs no script, no font and no server."""
