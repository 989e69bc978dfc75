# SPDX-License-Identifier: Apache-2.0
"""Accept the writes of Slurm's own plugin ``acct_gather_profile/influxdb``, as InfluxDB would.

On a loopback address, the kernel names the user who has connected, and only root's writes are accepted; any local
user can connect. On other addresses, the web configuration must require TLS, and passwords or certificates.

::

    CPUTime,job=12,step=-5,task=0,host=n1 value=1.98 1700000012              22.05 to 25.11
    CPUTime,host=n1,job=12,step=4294967291,task=0 value=1.98 1700000012      26.05
    task,host=n1,job=12,step=batch,task=0 CPUTime=1.98,RSS=20480i 1700000012 26.05 with grouped_fields

Up to 25.11, the task of node-wide samples is the name of their series; from 26.05 on they have none. Fields that Slurm
adds up are differences to the previous sample. Slurm escapes nothing, so a line with an escape is malformed.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import logging
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slurmscope.core.check import Check
from slurmscope.core.connection_owner import find_owner
from slurmscope.core.errors import ConfigError, MalformedAnswer
from slurmscope.core.log import fields
from slurmscope.http.server.address import parse_address
from slurmscope.http.server.request import BadRequest, HttpRequest
from slurmscope.http.server.response import NO_CONTENT, Response, Upload, text_response
from slurmscope.http.server.server import Server
from slurmscope.profile.events import (
    NODE_FORM,
    STEP_FORM,
    TASK_FORM,
    ProfileSeries,
    Sample,
    SampledField,
    StepKey,
)
from slurmscope.profile.receiver import MALFORMED, ROOT_UID, SENDER, Intake
from slurmscope.profile.steps import ProfileSteps

logger = logging.getLogger(__name__)


MAX_FIELDS = 256

_NAME = re.compile(r"[A-Za-z0-9_.+@:/-]{1,100}\Z")
_TAG = re.compile(r"[^\s\\,=\"]{1,255}\Z")
_NUMBER = re.compile(
    r"(?:[0-9]{1,20}i?|-?[0-9]{1,400}(?:\.[0-9]{1,400})?(?:e[+-]?[0-9]{1,4})?|-?inf|-?nan)\Z", re.ASCII
)
_TIME = re.compile(r"[0-9]{1,20}\Z", re.ASCII)
_ID = re.compile(r"-?[0-9]{1,10}\Z", re.ASCII)
_ID_BITS = 0xFFFFFFFF
_STEPS = {0xFFFFFFFA: "interactive", 0xFFFFFFFB: "batch", 0xFFFFFFFC: "extern", 0xFFFFFFFD: "unknown"}
_PENDING_STEP = "TBD"
_SERIES_OF_TASK = {series.value: series for series in ProfileSeries if series is not ProfileSeries.TASKS}
_SERIES_OF_GROUP = {"task": ProfileSeries.TASKS} | {series.value.lower(): series for series in _SERIES_OF_TASK.values()}
_SERIES_OF_FIELD = dict.fromkeys(("Reads", "ReadMB", "Writes", "WriteMB"), ProfileSeries.FILESYSTEM) | dict.fromkeys(
    ("PacketsIn", "PacketsOut", "InMB", "OutMB"), ProfileSeries.NETWORK
)
_POWER_FIELD = "Power"


@dataclass(frozen=True, slots=True)
class WrittenSample:
    """A sample and the step it belongs to; the totals of its fields are their values."""

    key: StepKey
    sample: Sample


def parse_write(body: bytes) -> tuple[tuple[WrittenSample, ...], int]:
    """Parse a body; return its samples, and how many of its lines are malformed."""
    samples: list[WrittenSample] = []
    malformed = 0
    for line in body.split(b"\n"):
        if not line:
            continue
        try:
            written = _parse_line(line)
        except MalformedAnswer:
            malformed += 1
            continue
        if samples and _is_continued(samples[-1], written):
            fields = {**samples[-1].sample.fields, **written.sample.fields}
            samples[-1] = replace(samples[-1], sample=replace(written.sample, fields=fields))
        else:
            samples.append(written)
    return tuple(samples), malformed


def _is_continued(last: WrittenSample, written: WrittenSample) -> bool:
    """Return whether a line has a further field of the same sample; a repeated field begins the next one."""
    old, new = last.sample, written.sample
    return (
        last.key == written.key
        and (old.series, old.task, old.time_seconds) == (new.series, new.task, new.time_seconds)
        and not old.fields.keys() & new.fields.keys()
    )


def _parse_line(line: bytes) -> WrittenSample:
    try:
        series_key, fields_text, time_text = line.decode("ascii").split(" ")
    except ValueError:
        raise MalformedAnswer("the line has not three parts, or is not ASCII") from None
    measurement, *tag_words = series_key.split(",")
    tags = dict(_parse_tags(tag_words))
    fields = _parse_fields(fields_text)
    if not _NAME.match(measurement) or len(tags) != len(tag_words) or not _TIME.match(time_text):
        raise MalformedAnswer("the measurement, a tag or the time is wrong")
    if fields.keys() == {"value"}:
        series = _series_of(measurement, tags.get("task"))
        fields = {measurement: fields["value"]}
    else:
        series = _known(_SERIES_OF_GROUP, measurement)
    sample = Sample(
        series=series,
        task=_checked(TASK_FORM, tags.get("task", "")) if series is ProfileSeries.TASKS else "",
        time_seconds=int(time_text),
        fields=fields,
    )
    key = StepKey(_parse_id(tags.get("job", "")), _parse_step(tags), _checked(NODE_FORM, tags.get("host", "")))
    return WrittenSample(key, sample)


def _parse_tags(words: list[str]) -> Iterator[tuple[str, str]]:
    for word in words:
        name, _, value = word.partition("=")
        yield _checked(_NAME, name), _checked(_TAG, value)


def _parse_fields(text: str) -> dict[str, SampledField]:
    words = text.split(",")
    fields: dict[str, SampledField] = {}
    for word in words:
        name, _, number = word.partition("=")
        value = float(_checked(_NUMBER, number).removesuffix("i"))
        fields[_checked(_NAME, name)] = SampledField(value, value)
    if len(fields) != len(words) or len(fields) > MAX_FIELDS:
        raise MalformedAnswer("a field comes twice, or there are too many")
    return fields


def _series_of(field: str, task: str | None) -> ProfileSeries:
    """Return the series of a field that has a line of its own."""
    if task is not None:
        return _SERIES_OF_TASK.get(task, ProfileSeries.TASKS)
    return ProfileSeries.ENERGY if field.endswith(_POWER_FIELD) else _known(_SERIES_OF_FIELD, field)


def _parse_step(tags: Mapping[str, str]) -> str:
    """Return the name of a step as the other plugin sends it."""
    text = tags.get("step", "")
    if not _ID.match(text):
        return "unknown" if text == _PENDING_STEP else _checked(STEP_FORM, text)
    number = _parse_id(text)
    return _STEPS.get(number, str(number))


def _parse_id(text: str) -> int:
    """Return a number of 32 bits; Slurm prints large ones as if they had a sign."""
    number = int(_checked(_ID, text))
    if not -(2**31) <= number <= _ID_BITS:
        raise MalformedAnswer("a number has more than 32 bits")
    return number & _ID_BITS


def _known(series: Mapping[str, ProfileSeries], name: str) -> ProfileSeries:
    if name not in series:
        raise MalformedAnswer("the measurement is not known")
    return series[name]


def _checked(form: re.Pattern[str], text: str) -> str:
    if not form.match(text):
        raise MalformedAnswer("a part of the line is missing or not valid")
    return text


PATH = "/write"
BODY_LIMIT_BYTES = 128 * 1024
"""Slurm sends what it has before this is 16 KiB, and never less than one sample."""

MAX_CONNECTIONS = 64
RETRY_SECONDS = 0.5
CLOSE_SECONDS = 1.0
END_SECONDS = 5.0
_INTERCONNECT = "acct_gather_interconnect/"
_NETWORK_MEGABYTES = frozenset({"InMB", "OutMB"})


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxOptions:
    """Where to listen, and what the lines do not say: whether Slurm accounts GPUs, and its interconnect plugin."""

    address: str
    config_file: Path | None = None
    has_gpus: bool = False
    interconnect: str = ""

    def is_loopback(self) -> bool:
        """Return whether only this machine can connect."""
        host = parse_address(self.address).host
        try:
            return host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raise ConfigError if users of other machines could write without a password or certificate."""
        if self.is_loopback():
            return
        if self.config_file is not None:
            from slurmscope.http.server.webconfig import ClientAuth, read_web_config

            web = read_web_config(self.config_file)
            is_required = web.tls is not None and web.tls.client_auth is ClientAuth.REQUIRE_AND_VERIFY
            if web.tls is not None and (web.users or is_required):
                return
        raise ConfigError(
            f"profile.influxdb-listen-address {self.address} is not a loopback address such as 127.0.0.1:8086, and "
            "web.config.file does not require TLS with basic authentication or client certificates"
        )

    def complete(self, sample: Sample) -> Sample:
        """Add what the lines do not say; bytes of a network are left out if their unit is unknown."""
        if sample.series is not ProfileSeries.NETWORK:
            return replace(sample, has_gpus=self.has_gpus)
        if self.interconnect:
            return replace(sample, sampler=_INTERCONNECT + self.interconnect)
        known = {name: field for name, field in sample.fields.items() if name not in _NETWORK_MEGABYTES}
        return replace(sample, fields=known)


class ProfileInbox:
    """Run the HTTP server; an address that is in use is tried again and again, as it is free soon after a reload."""

    def __init__(self, options: InboxOptions, steps: ProfileSteps, *, writers: Collection[int] | None = None) -> None:
        """Start listening; ``close`` ends it.

        On a loopback address, only these users may write, by default root and the user of this process.
        """
        options.check()
        allowed = (ROOT_UID, os.geteuid()) if writers is None else writers
        self._options = options
        self._steps = steps
        self._writers = frozenset(allowed) if options.is_loopback() else None
        self.intake = Intake(steps)
        self._is_stopping = threading.Event()
        self._server: Server | None = None
        self._upload = Upload(limit_bytes=BODY_LIMIT_BYTES, refuse=self._refuse)
        self._thread = threading.Thread(target=self._run, name="profile-inbox", daemon=True)
        self._thread.start()
        self.intake.has_tried.wait(END_SECONDS)

    @property
    def port(self) -> int:
        """Return the port that the server listens on, 0 if it does not."""
        return self._server.addresses[0].port if self._server else 0

    def checks(self) -> Iterator[Check]:
        yield self.intake.check("profile influxdb", self._options.address, "profile.influxdb-listen-address")

    def close(self) -> None:
        self._is_stopping.set()
        if self._server is not None:
            self._server.close(CLOSE_SECONDS)
        self._thread.join(END_SECONDS)

    def __call__(self, request: HttpRequest) -> Response:
        """Answer a request: 204 if all lines were used."""
        if request.path != PATH:
            return text_response(404, f"Only {PATH} is answered here.")
        if request.method != "POST":
            return text_response(405, "This address accepts writes of Slurm only.", ("Allow", "POST"))
        if not self._may_write(request):
            uid = request.credentials.uid if request.credentials else None
            return self._reject(SENDER, 403, f"uid {uid} is not root, who alone may write")
        if dict(request.query).get("precision") != "s":
            return self._reject(MALFORMED, 400, "precision is not s")
        written, malformed = parse_write(request.body)
        for one in written:
            self._steps.handle_difference(one.key, self._options.complete(one.sample))
        if malformed:
            return self._reject(MALFORMED, 400, f"partial write: {malformed} lines are not as Slurm writes them")
        return Response(status=NO_CONTENT)

    def find_upload(self, request: HttpRequest) -> Upload | None:
        """Read the bodies of those who may write."""
        return self._upload if request.method == "POST" and self._may_write(request) else None

    def _may_write(self, request: HttpRequest) -> bool:
        if self._writers is None:
            return True
        return request.credentials is not None and request.credentials.uid in self._writers

    def _refuse(self, problem: BadRequest) -> Response:
        return self._reject(MALFORMED, problem.status, problem.message)

    def _reject(self, reason: str, status: int, why: str) -> Response:
        logger.warning("profiling write rejected", extra=fields(reason, reason=reason, error=why))
        self._steps.reject(reason)
        body = json.dumps({"error": why}).encode()
        return Response(status=status, headers=(("Content-Type", "application/json"),), body=body)

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            try:
                server = self._open()
            except ConfigError as problem:
                self._note(problem)
                self._is_stopping.wait(RETRY_SECONDS)
                continue
            self._server = server
            self.intake.settle()
            logger.info("receiving profiling writes", extra=fields(address=str(server.addresses[0])))
            if self._is_stopping.is_set():
                server.close(CLOSE_SECONDS)
            server.serve()

    def _open(self) -> Server:
        is_local = self._writers is not None
        return Server(
            self,
            addresses=(self._options.address,),
            find_upload=self.find_upload,
            find_owner=find_owner if is_local else None,
            config_file=None if is_local else self._options.config_file,
            max_connections=MAX_CONNECTIONS,
        )

    def _note(self, problem: ConfigError) -> None:
        """Remember why the address cannot be used, and log it once."""
        cause = problem.__cause__
        is_elsewhere = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
        error = None if is_elsewhere else str(problem)
        if not self.intake.has_tried.is_set() or error != self.intake.error:
            logger.warning("profiling writes cannot be received", extra=fields(error=str(problem)))
        self.intake.settle(error, is_elsewhere=is_elsewhere)
