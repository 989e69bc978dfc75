# SPDX-License-Identifier: Apache-2.0
"""Compare the metrics page of a replaced tool with ours, and describe what changed in each of these tools."""
