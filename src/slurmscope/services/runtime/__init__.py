# SPDX-License-Identifier: Apache-2.0
"""Run threads for months: periodic tasks, signals, memory."""
