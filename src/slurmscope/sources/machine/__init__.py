# SPDX-License-Identifier: Apache-2.0
"""Read facts of this machine: user names, inotify events, connections, our own process."""
