# SPDX-License-Identifier: Apache-2.0
"""Check jobs: a summary in, findings out. One module per subject."""
