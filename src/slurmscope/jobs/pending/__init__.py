# SPDX-License-Identifier: Apache-2.0
"""Why jobs are pending, and what would start them sooner."""
