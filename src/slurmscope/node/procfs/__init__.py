# SPDX-License-Identifier: Apache-2.0
"""Read processes, and add up what those of a job use."""
