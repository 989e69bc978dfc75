# SPDX-License-Identifier: Apache-2.0
"""Join readings and sum them up, without I/O."""
