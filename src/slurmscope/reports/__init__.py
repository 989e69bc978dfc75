# SPDX-License-Identifier: Apache-2.0
"""Render the report of a job: one document in, text or bytes out."""
