# SPDX-License-Identifier: Apache-2.0
"""Read job records from sacct or from the accounting database."""
