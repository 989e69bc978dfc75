# SPDX-License-Identifier: Apache-2.0
"""Show what a Slurm cluster and every job on it really do."""

import sys

__version__ = "0.1.0"

# Here, since an older interpreter cannot even parse the other modules; this file has nothing that it does not know.
if sys.version_info < (3, 11):  # noqa: UP036 - for whoever runs a clone
    found = sys.version.split()[0] + " at " + sys.executable
    advice = "install python3.11 of your distribution, or build a newer one; docs/install.md has a table"
    sys.exit("slurmscope: Python 3.11 or later is needed, and this is " + found + ": " + advice)
