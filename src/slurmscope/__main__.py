# SPDX-License-Identifier: Apache-2.0
"""Run the command line as ``python -m slurmscope``."""

from slurmscope.cli import main

if __name__ == "__main__":
    main()
