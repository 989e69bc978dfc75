# SPDX-License-Identifier: Apache-2.0
"""Send HTTP requests, with a deadline over all bytes and a size limit."""
