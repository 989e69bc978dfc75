# SPDX-License-Identifier: Apache-2.0
"""The archive of job reports: SQLite, MariaDB or PostgreSQL."""
