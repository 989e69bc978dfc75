# SPDX-License-Identifier: Apache-2.0
"""Keep sums of jobs, and add jobs up."""
