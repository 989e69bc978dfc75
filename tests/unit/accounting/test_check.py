# SPDX-License-Identifier: Apache-2.0
"""Check the advice for an unreachable database; the other checks are tested with a real server."""

from __future__ import annotations

import socket

from slurmscope.accounting.grant import check
from slurmscope.accounting.settings import AccountingSettings, DatabaseAddress


def test_unreachable_server_is_not_a_user_without_rights() -> None:
    with socket.socket() as taken:
        # Bound but not listening: connections are refused.
        taken.bind(("127.0.0.1", 0))
        (one,) = check(AccountingSettings(host=DatabaseAddress("127.0.0.1", taken.getsockname()[1])))

    assert (False, "connection") == (one.is_good, one.name)
    assert one.advice.startswith("check that the server is running")
