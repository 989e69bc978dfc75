# SPDX-License-Identifier: Apache-2.0
"""Count the requests that the controller of a lab has answered."""

from __future__ import annotations

import re
from collections import Counter

from lab import SlurmLab


def count_requests(lab: SlurmLab) -> Counter[str]:
    """Return the requests for information by type, from sdiag; counting is a REQUEST_STATS_INFO itself."""
    rows = lab.run("sdiag").partition("by message type")[2].partition("by user")[0]
    return Counter({name: int(count) for name, count in re.findall(r"(\w+_INFO)\s*\(\s*\d+\)\s*count:(\d+)", rows)})
