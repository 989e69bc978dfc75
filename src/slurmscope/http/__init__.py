# SPDX-License-Identifier: Apache-2.0
"""HTTP for the exporters: a small server, and a client with deadlines."""
