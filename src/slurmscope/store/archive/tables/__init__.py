# SPDX-License-Identifier: Apache-2.0
"""Define the tables of the archive, and what fits into them."""
