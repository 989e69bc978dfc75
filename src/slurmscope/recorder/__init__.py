# SPDX-License-Identifier: Apache-2.0
"""Record samples of jobs on one machine that has no Prometheus."""
