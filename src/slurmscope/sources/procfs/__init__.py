# SPDX-License-Identifier: Apache-2.0
"""Read processes from /proc."""
