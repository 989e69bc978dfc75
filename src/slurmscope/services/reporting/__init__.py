# SPDX-License-Identifier: Apache-2.0
"""Make, archive and find job reports."""
