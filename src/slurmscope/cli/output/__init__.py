# SPDX-License-Identifier: Apache-2.0
"""Write to the terminal, or render reports for it."""
