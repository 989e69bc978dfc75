# SPDX-License-Identifier: Apache-2.0
"""Read the world: one file per thing that is read, and no other code that reads it."""
