# SPDX-License-Identifier: Apache-2.0
"""Join and summarise measurements, without I/O."""
