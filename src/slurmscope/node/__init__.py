# SPDX-License-Identifier: Apache-2.0
"""The node agent: which jobs run on this machine, and what they use."""
