# SPDX-License-Identifier: Apache-2.0
"""Run the portal and answer its requests from the archive, accounting and the controller."""
