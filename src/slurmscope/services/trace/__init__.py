# SPDX-License-Identifier: Apache-2.0
"""Accept samples of traced processes, check who sends them, and keep the latest of each process."""
