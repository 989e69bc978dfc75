# SPDX-License-Identifier: Apache-2.0
"""Rows of sacct, and an sacct that answers with a function of its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slurmscope.accounting.fields import COLUMNS, LAST_COLUMN

MARK = "|c0ffee|"

WIDE = (*COLUMNS, "SubmitLine", LAST_COLUMN)

JOB = {
    "JobIDRaw": "12", "JobID": "12", "JobName": "relax", "Cluster": "lab", "User": "ada", "UID": "1001",
    "Account": "physics", "Partition": "debug", "QOS": "normal", "Submit": "1794733160", "Eligible": "1794733161",
    "Start": "1794733163", "End": "1794733263", "TimelimitRaw": "10",
    "AllocTRES": "billing=4,cpu=4,gres/gpu=2,mem=400M,node=2", "ReqTRES": "cpu=1,mem=1G,node=1",
    "NodeList": "n[1-2]", "NNodes": "2", "NTasks": "", "ExitCode": "0:0", "TotalCPU": "00:00.000", "MaxRSS": "",
    "Reason": "None", "WorkDir": "/home/ada", "SubmitLine": "sbatch relax.sh", "Suspended": "00:00:00",
    "StdOut": "/home/ada/%j.out", "StdErr": "/home/ada/%j.err", "FailedNode": "n2", "AdminComment": "",
    "State": "COMPLETED",
}  # fmt: skip

STEP = {
    **dict.fromkeys(JOB, ""), "JobIDRaw": "12.0", "JobID": "12.0", "JobName": "relax", "Cluster": "lab",
    "Account": "physics", "Submit": "1794733163", "Start": "1794733163", "End": "1794733260", "NodeList": "n[1-2]",
    "NNodes": "2", "NTasks": "8", "ExitCode": "0:0", "TotalCPU": "01:02.500", "MaxRSS": "1048576",
    "State": "COMPLETED",
}  # fmt: skip


def rows(*values: dict[str, str], columns: Sequence[str] = WIDE, mark: str = MARK) -> bytes:
    return "".join(mark.join(row[column] for column in columns) + "\n" for row in values).encode(
        "utf-8", "surrogateescape"
    )


class FakeSacct:
    """Answer each call with a function of its options, and record the calls."""

    def __init__(self, answer: Callable[[dict[str, str]], Sequence[dict[str, str]]], help: str = "SubmitLine") -> None:
        self.calls: list[dict[str, str]] = []
        self._answer = answer
        self._help = help

    def run(self, name: str, arguments: Sequence[str]) -> bytes:
        assert "sacct" == name
        if "--helpformat" in arguments:
            return self._help.encode()
        options = dict(argument.removeprefix("--").partition("=")[::2] for argument in arguments)
        self.calls.append(options)
        return rows(*self._answer(options), columns=options["format"].split(","), mark=options["delimiter"])
