# SPDX-License-Identifier: Apache-2.0
"""Count what the processor does for jobs."""
