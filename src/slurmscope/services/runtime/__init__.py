# SPDX-License-Identifier: Apache-2.0
"""Support long-running processes: periodic tasks, signals, memory."""
