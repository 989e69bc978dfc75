# SPDX-License-Identifier: Apache-2.0
"""Find out who sends a request, and refuse those who may not."""
