# SPDX-License-Identifier: Apache-2.0
"""What the cluster is made of, as frozen data: no I/O, no clock."""
