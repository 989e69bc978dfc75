# SPDX-License-Identifier: Apache-2.0
"""Open the database of the archive, keep it to its time limits, and bring its tables up to date."""
