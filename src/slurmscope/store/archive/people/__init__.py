# SPDX-License-Identifier: Apache-2.0
"""Keep notes, tags and tokens of people, and the audit log of their access."""
