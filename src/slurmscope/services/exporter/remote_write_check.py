# SPDX-License-Identifier: Apache-2.0
"""Check the remote write endpoint, for ``slurmscope doctor``: an agent that cannot send is silent in every graph."""

from __future__ import annotations

from collections.abc import Iterator

from slurmscope.errors import SlurmscopeError
from slurmscope.model.check import Check
from slurmscope.outputs.remote_write.client import RemoteWriteClient
from slurmscope.outputs.remote_write.encoding import EMPTY_REQUEST
from slurmscope.outputs.remote_write.settings import RemoteWriteSettings

TIMEOUT_SECONDS = 10.0
ADVICE = (
    "check the path of output.remote-write, its headers and certificates; Prometheus needs "
    "--web.enable-remote-write-receiver: docs/scaling.md"
)


def check_remote_write(settings: RemoteWriteSettings) -> Iterator[Check]:
    """Send a request without samples; nothing is checked where remote write is not set up."""
    if settings.url is None:
        return
    try:
        RemoteWriteClient(settings, settings.url).send(EMPTY_REQUEST, TIMEOUT_SECONDS)
    except SlurmscopeError as error:
        yield Check(name="remote write", is_good=False, message=str(error), advice=ADVICE)
    else:
        yield Check(name="remote write", is_good=True, message=f"{settings.url} accepts requests")
