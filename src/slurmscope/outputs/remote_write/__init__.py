# SPDX-License-Identifier: Apache-2.0
"""Send samples to a server that accepts the remote write protocol of Prometheus."""
