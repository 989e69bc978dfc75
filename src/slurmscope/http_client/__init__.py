# SPDX-License-Identifier: Apache-2.0
"""Send HTTP requests with a deadline and a size limit."""
