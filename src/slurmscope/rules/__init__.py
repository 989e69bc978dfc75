# SPDX-License-Identifier: Apache-2.0
"""Judge jobs: a summary in, findings out. One module per subject."""
