# SPDX-License-Identifier: Apache-2.0
"""Accept samples of traced processes, from jobs on all nodes."""
