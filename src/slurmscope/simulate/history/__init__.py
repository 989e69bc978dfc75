# SPDX-License-Identifier: Apache-2.0
"""Generate past jobs, what they did, and the samples that agents would have recorded."""
