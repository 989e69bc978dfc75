# SPDX-License-Identifier: Apache-2.0
"""Write the configuration of a host: look at it, ask little, show what would change, then write."""
