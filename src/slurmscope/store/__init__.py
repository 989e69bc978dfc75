# SPDX-License-Identifier: Apache-2.0
"""Keep reports of jobs, and samples where there is no Prometheus."""
