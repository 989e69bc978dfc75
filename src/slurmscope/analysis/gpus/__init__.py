# SPDX-License-Identifier: Apache-2.0
"""Find out which jobs hold which GPUs of a node, and add up how they use them."""
