# SPDX-License-Identifier: Apache-2.0
"""The web portal: one file per page."""
