# SPDX-License-Identifier: Apache-2.0
"""Answer like squeue 22.05.

Known options: ``-h -a -r -t -O -o -V``, the filters ``-u -A -p -j``, and ``-S --local --noconvert`` which are taken and
change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from operator import mul
from typing import TYPE_CHECKING

from slurmscope.simulator.cluster.job_states import COMPACT_STATES, ENDED_STATES
from slurmscope.simulator.commands.job_fields import FIELDS, id_texts, task_texts
from slurmscope.simulator.commands.listing import (
    STANDARD_TIME,
    ColumnLayout,
    Command,
    CommandResult,
    Options,
    ReadColumn,
    UsageError,
    choose_layout,
    encode,
    header_of,
    name_columns,
    parse_options,
    refuse,
    render_lines,
    render_times,
    version_answer,
)

if TYPE_CHECKING:
    from slurmscope.simulator.cluster.records import SimulatedCluster


_NAME = "squeue"
_DEFAULT_FORMAT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
_OPTIONS = {
    "h": "noheader", "a": "all", "r": "array", "V": "version", "O:": "Format", "o:": "format", "t:": "states",
    "u:": "user", "A:": "account", "p:": "partition", "j:": "jobs", "S:": "sort", "local": "local",
    "noconvert": "noconvert",
}  # fmt: skip
_LETTERS = {
    "a": "account", "A": "jobid", "b": "tres-per-node", "c": "mincpus", "C": "numcpus", "D": "numnodes", "e": "endtime",
    "E": "dependency", "f": "feature", "F": "arrayjobid", "g": "groupname", "i": "jobarrayid", "j": "name",
    "k": "comment", "K": "arraytaskid", "l": "timelimit", "L": "timeleft", "m": "minmemory", "M": "timeused",
    "N": "nodelist", "p": "priority", "P": "partition", "q": "qos", "Q": "prioritylong", "r": "reason",
    "R": "reasonlist", "S": "starttime", "t": "statecompact", "T": "state", "u": "username", "U": "userid",
    "V": "submittime", "W": "licenses", "Z": "workdir",
}  # fmt: skip

# Without -t squeue leaves out what has ended, and revoked siblings of a federation.
_DEFAULT_STATES = frozenset(COMPACT_STATES) - ENDED_STATES - {"REVOKED"} | {"STAGE_OUT"}

_FILTERS = {"user": "username", "account": "account", "partition": "partition", "jobs": "arrayjobid"}

# The columns that differ between the rows of one pending array, as they are with -r.
_TASK_COLUMNS = {"jobarrayid": id_texts, "arraytaskid": task_texts}
_ROWS = "rows"

# squeue's room for an index list, and for a whole id unless SLURM_BITSTR_LEN is set.
_BITSTR_LENGTH = 64
_ID_LENGTH = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """Hold which records are printed (None: all) and, with -r, how often each (None: once)."""

    keep: list[bool] | None
    counts: list[int] | None

    def apply(self, values: Sequence[bytes]) -> Sequence[bytes]:
        """Pick and repeat the values of one column."""
        if self.keep is not None:
            values = list(compress(values, self.keep))
        return values if self.counts is None else list(chain.from_iterable(map(repeat, values, self.counts)))


def column(cluster: SimulatedCluster, name: str) -> list[bytes]:
    """Return one column of all jobs: a field, the number of rows, or a field of an array's tasks joined by blanks."""
    if name == _ROWS:
        return [b"%d" % job.rows for job in cluster.jobs]
    if name.endswith(".tasks"):
        texts = _TASK_COLUMNS[name.removesuffix(".tasks")]
        return [encode(" ".join(texts(job))) for job in cluster.jobs]
    return [encode(FIELDS[name].of(job, cluster.now)) for job in cluster.jobs]


def respond(read: ReadColumn, argv: Sequence[str], environment: Mapping[str, str]) -> CommandResult:
    """Answer from columns; unknown fields cost an empty column, unknown options the answer."""
    try:
        options = parse_options(argv, _OPTIONS)
        if "version" in options:
            return version_answer()
        layout, has_letters = choose_layout(options, _DEFAULT_FORMAT)
        selection = _select(read, options)
    except UsageError as error:
        return refuse(_NAME, error)
    layout, complaints = name_columns(_NAME, layout, FIELDS, _LETTERS if has_letters else None)
    header = b"" if "noheader" in options else header_of(layout, FIELDS)
    return 0, header + _render(read, layout, selection, environment), complaints


def _render(read: ReadColumn, layout: ColumnLayout, selection: _Selection, environment: Mapping[str, str]) -> bytes:
    counts = selection.counts
    if counts is not None and all(column.name not in _TASK_COLUMNS for column in layout.columns):
        # The tasks of an array print the same row: it is made once per record and repeated.
        once = _Selection(keep=selection.keep, counts=None)
        return b"".join(map(mul, _lines(read, layout, once, environment), counts))
    return b"".join(_lines(read, layout, selection, environment))


def _lines(
    read: ReadColumn, layout: ColumnLayout, selection: _Selection, environment: Mapping[str, str]
) -> Iterator[bytes]:
    rows = len(selection.apply(read(_ROWS)))
    values = [_values(read, column.name, selection, environment, rows) for column in layout.columns]
    return render_lines(layout, values, rows)


def _select(read: ReadColumn, options: Options) -> _Selection:
    keep: list[bool] | None = None
    states = _states(options)
    if states is not None:
        wanted = {encode(state) for state in states}
        keep = [state in wanted for state in read("state")]
    for option, name in _FILTERS.items():
        names = options.names(option)
        if names is not None:
            allowed = {encode(text) for text in names}
            matches = [not allowed.isdisjoint(value.split(b",")) for value in read(name)]
            keep = matches if keep is None else [kept and match for kept, match in zip(keep, matches, strict=True)]
    if "array" not in options:
        return _Selection(keep=keep, counts=None)
    counts = [int(count) for count in read(_ROWS)]
    return _Selection(keep=keep, counts=counts if keep is None else list(compress(counts, keep)))


def _states(options: Options) -> frozenset[str] | None:
    """Return the states to list; None lists all of them."""
    given = options.values.get("states")
    if given is None:
        return _DEFAULT_STATES
    if given.lower() == "all":
        return None
    long_names = {compact: state for state, compact in COMPACT_STATES.items()} | {
        state: state for state in COMPACT_STATES
    }
    try:
        return frozenset(long_names[state.upper()] for state in given.split(","))
    except KeyError as error:
        raise UsageError(f"no such job state: {error.args[0]}") from error


def _values(
    read: ReadColumn, name: str, selection: _Selection, environment: Mapping[str, str], rows: int
) -> Sequence[bytes]:
    if name not in FIELDS:
        return [encode(name)] * rows
    if name in _TASK_COLUMNS and selection.counts is not None:
        once = _Selection(keep=selection.keep, counts=None).apply(read(name + ".tasks"))
        return list(chain.from_iterable(value.split(b" ") for value in once))
    values = read(name)
    if name in _TASK_COLUMNS:
        values = [_cut(value, environment.get("SLURM_BITSTR_LEN")) for value in values]
    elif FIELDS[name].is_time:
        values = render_times(values, environment.get("SLURM_TIME_FORMAT", STANDARD_TIME))
    return selection.apply(values)


def _cut(text: bytes, length: str | None) -> bytes:
    """Cut an index list as squeue does: "1,3,5..." and, unless the length was set, a whole id at 31 bytes."""
    if b"," not in text:
        return text
    start, bracket, rest = text.rpartition(b"[")
    indexes, percent, limit = rest.removesuffix(b"]").partition(b"%")
    room = int(length) if length and length.isdigit() else _BITSTR_LENGTH
    if room and len(indexes) >= room:
        indexes = indexes[: max(0, room - 4)] + b"..."
    whole = start + bracket + indexes + percent + limit + (b"]" if bracket else b"")
    return whole[:_ID_LENGTH] if bracket and not length else whole


COMMAND = Command(
    name=_NAME,
    columns=(*FIELDS, _ROWS, *(f"{name}.tasks" for name in _TASK_COLUMNS)),
    column=column,
    respond=respond,
)
answer = COMMAND.answer
