# SPDX-License-Identifier: Apache-2.0
"""Keep job reports in SQLite, MariaDB or PostgreSQL."""
