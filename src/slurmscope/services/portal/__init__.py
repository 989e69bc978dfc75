# SPDX-License-Identifier: Apache-2.0
"""Run the portal with its archive, accounting and controller access."""
