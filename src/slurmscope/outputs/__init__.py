# SPDX-License-Identifier: Apache-2.0
"""Deliver metrics and mails: over HTTP, to a file, to a Pushgateway, by SMTP."""
