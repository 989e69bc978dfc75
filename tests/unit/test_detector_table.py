# SPDX-License-Identifier: Apache-2.0
"""The trial of the detectors writes its table into the page about rules, and nothing else."""

from __future__ import annotations

import pytest

from bench.detectors import BEGIN, END, PAGE, replace_table


def test_only_what_is_between_the_marks_changes() -> None:
    page = f"before\n{BEGIN}\nold\nlines\n{END}\nafter\n<!-- end -->\n"

    assert f"before\n{BEGIN}\n| new |\n{END}\nafter\n<!-- end -->\n" == replace_table(page, "| new |")
    with pytest.raises(ValueError, match="unpack"):
        replace_table("no marks", "| new |")


def test_page_has_the_marks_once_and_a_table() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert (1, 1) == (page.count(BEGIN), page.count(END))
    assert "| `straggler` |" in page.split(BEGIN)[1].split(END)[0]
