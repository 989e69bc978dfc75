# SPDX-License-Identifier: Apache-2.0
"""Mail reports and weekly digests."""
