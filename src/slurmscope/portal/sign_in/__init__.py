# SPDX-License-Identifier: Apache-2.0
"""Find out who a visitor is, and which jobs they may see."""
