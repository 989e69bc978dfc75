# SPDX-License-Identifier: Apache-2.0
"""Convert pushed metrics, which the inbox keeps as text, to samples for remote write, once per change."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from slurmscope.errors import MalformedAnswer
from slurmscope.log import fields
from slurmscope.metrics.parse import parse
from slurmscope.metrics.write import Format
from slurmscope.outputs.remote_write.encoding import Series
from slurmscope.services.exporter.page import decompressed
from slurmscope.services.exporter.readings import PushedPage

logger = logging.getLogger(__name__)

EncodeSeries = Callable[[str, Mapping[str, str]], Series]


class PushedSeries:
    """Hold the samples of the current pushed metrics."""

    def __init__(self, find_page: Callable[[], PushedPage], encode_series: EncodeSeries) -> None:
        """Take what returns the current page, the same object as long as nothing changes."""
        self._find_page = find_page
        self._encode_series = encode_series
        self._page = PushedPage()
        self._samples: list[tuple[Series, float]] = []

    def samples(self) -> Sequence[tuple[Series, float]]:
        """Return all pushed samples; none if their page cannot be parsed."""
        page = self._find_page()
        if page is not self._page:
            self._page = page
            try:
                self._samples = self._encode(page)
            except MalformedAnswer as error:
                self._samples = []
                logger.error("pushed metrics are not sent by remote write", extra=fields(error=str(error)))
        return self._samples

    def _encode(self, page: PushedPage) -> list[tuple[Series, float]]:
        beside = (text.header + text.samples for text in page.beside.values())
        text = b"".join((*decompressed(page.blocks), *beside)).decode()
        return [
            (self._encode_series(sample.name, sample.labels), sample.value)
            for family in parse(text, Format.TEXT)
            for sample in family.samples
        ]
