# SPDX-License-Identifier: Apache-2.0
"""Read good and bad OpenMetrics pages, one rule of the format each; prometheus_client's parser is the second opinion.

Pages are given without their end. The parser checks the grammar, and that each family is one group; what numbers mean
is left to Prometheus, as ``BAD_NUMBERS`` shows.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as library

from slurmscope.metrics.parse import MalformedPage, parse
from slurmscope.metrics.write import Format

END = "# EOF\n"
H = "# TYPE h histogram\n"

GOOD = {
    "nothing": "",
    "counter with all its metadata": "# HELP c_s A\n# TYPE c_s counter\n# UNIT c_s s\nc_s_total 1\nc_s_created 1.5\n",
    "times of creation": '# TYPE c counter\nc_total{a="1"} 1\nc_created{a="1"} 2\nc_total{a="2"} 3\n',
    "metadata in another order": "# UNIT g_bytes bytes\n# TYPE g_bytes gauge\n# HELP g_bytes Size.\ng_bytes 1\n",
    "metadata without samples": "# TYPE a gauge\n# HELP a Nothing.\n",
    "no metadata": "a 1\nb 2\n",
    "unknown type": "# TYPE a unknown\na 1\n",
    "info": '# TYPE a info\na_info{version="1"} 1\n',
    "set of states": '# TYPE a stateset\na{a="on"} 1\na{a="off"} 0\n',
    "histogram": H + 'h_bucket{le="1.0"} 1\nh_bucket{le="+Inf"} 3\nh_count 3\nh_sum 4\n',
    "histogram without a sum": H + 'h_bucket{le="+Inf"} 3\n',
    "histogram of two series": H + 'h_bucket{a="1",le="+Inf"} 3\nh_bucket{a="2",le="+Inf"} 4\n',
    "histogram with negative bounds": H + 'h_bucket{le="-1.0"} 1\nh_bucket{le="+Inf"} 3\n',
    "exemplars of buckets": H + 'h_bucket{le="1.0"} 1 # {trace="x"} 0.5\nh_bucket{le="+Inf"} 2 # {trace="y"} 4 1.5\n',
    "exemplar of a counter": '# TYPE c counter\nc_total 1 # {a="b"} 0.5\n',
    "histogram of gauges": '# TYPE g gaugehistogram\ng_bucket{le="+Inf"} 3\ng_gcount 3\ng_gsum 2\n',
    "summary": '# TYPE s summary\ns{quantile="0.5"} 1\ns{quantile="1.0"} 2\ns_count 3\ns_sum 4\ns_created 5\n',
    "summary without quantiles": "# TYPE s summary\ns_count 3\ns_sum 4\n",
    "times": "a 1 1.5\nb 2 -3\nc 3 1e3\n",
    "two times of one series": "# TYPE a gauge\na 1 1\na 2 2\n",
    "numbers": "a 1e3\nb -0.5\nc +Inf\nd -Inf\ne .5\nf 5.\ng 1E-3\n",
    "not a number": "a NaN\n",
    "escapes": 'a{b="\\n \\\\ \\""} 1\n',
    "escapes in a help text": '# TYPE a gauge\n# HELP a One\\n two \\\\ \\" three.\n',
    "empty help": "# HELP a \n# TYPE a gauge\na 1\n",
    "blanks in a label value": 'a{b=" c  d "} 1\n',
    "braces and hash in a label value": 'a{b="} # {c=\\"d\\"} 1"} 1\n',
    "no labels in braces": "a{} 1\n",
    "empty label value": 'a{b=""} 1\n',
    "letters of other languages": 'a{b="Größe 日本 \U0001f600"} 1\n',
    "name with colons": "a:b:c 1\n",
    "name of one underscore": "_ 1\n",
    "label that begins with an underscore": 'a{_b="c"} 1\n',
    "name that ends as a counter": "# TYPE a_total gauge\na_total 1\n",
    "large number of a counter": "# TYPE c counter\nc_total 1e300\n",
    "names that begin alike": "# TYPE a gauge\na 1\n# TYPE a_b gauge\na_b 2\n",
}

BAD = {
    "empty line": "\n",
    "comment": "# a comment\n",
    "blank before a name": " a 1\n",
    "two blanks before a number": "a  1\n",
    "blank behind a number": "a 1 \n",
    "tab": "a\t1\n",
    "no number": "a\n",
    "word for a number": "a one\n",
    "hexadecimal number": "a 0x10\n",
    "underscore in a number": "a 1_000\n",
    "number of time that is none": "a 1 x\n",
    "time that is not a number": "a 1 NaN\n",
    "infinite time": "a 1 +Inf\n",
    "two times": "a 1 2 3\n",
    "name that begins with a digit": "1a 1\n",
    "name with a dash": "a-b 1\n",
    "label that begins with a digit": 'a{1b="c"} 1\n',
    "label without quotes": "a{b=c} 1\n",
    "label in other quotes": "a{b='c'} 1\n",
    "label without a value": "a{b} 1\n",
    "label twice": 'a{b="1",b="2"} 1\n',
    "comma behind the last label": 'a{b="c",} 1\n',
    "comma only": "a{,} 1\n",
    "two commas": 'a{b="1",,c="2"} 1\n',
    "no comma": 'a{b="1"c="2"} 1\n',
    "brace that is not closed": 'a{b="1" 1\n',
    "quote that is not closed": 'a{b="1} 1\n',
    "no blank behind labels": 'a{b="1"}1\n',
    "type that does not exist": "# TYPE a meter\n",
    "type of the older format": "# TYPE a untyped\n",
    "type in capitals": "# TYPE a GAUGE\n",
    "type without a name": "# TYPE\n",
    "type without a word": "# TYPE a\n",
    "two types": "# TYPE a gauge\n# TYPE a gauge\n",
    "two helps": "# HELP a b\n# HELP a b\n",
    "two units": "# TYPE a_s gauge\n# UNIT a_s s\n# UNIT a_s s\n",
    "type behind its samples": "a 1\n# TYPE a gauge\n",
    "help behind its samples": "a 1\n# HELP a b\n",
    "unit that the name does not end in": "# TYPE a gauge\n# UNIT a seconds\na 1\n",
    "family in two parts": "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na 2\n",
    "counter without its ending": "# TYPE c counter\nc 1\n",
    "info without its ending": "# TYPE a info\na 1\n",
    "exemplar without a number": '# TYPE c counter\nc_total 1 # {a="b"}\n',
    "carriage return": "a 1\r\n",
}

CUT = {
    "text after the end": "a 1\n# EOF\nb 1\n",
    "no end": "a 1\n",
    "end that is cut": "a 1\n# EO",
    "blank behind the end": "a 1\n# EOF ",
}
"""Pages with another end, or none."""

BAD_NUMBERS = {
    "unit of an info": "# TYPE a_s info\n# UNIT a_s s\na_s_info 1\n",
    "negative counter": "# TYPE c counter\nc_total -1\n",
    "counter that is not a number": "# TYPE c counter\nc_total NaN\n",
    "info that is not 1": "# TYPE a info\na_info 2\n",
    "state that is neither 0 nor 1": '# TYPE a stateset\na{a="on"} 2\n',
    "state without its label": "# TYPE a stateset\na 1\n",
    "bucket without a bound": H + "h_bucket 1\n",
    "bound that is no number": H + 'h_bucket{le="x"} 1\n',
    "no infinite bucket": H + 'h_bucket{le="1.0"} 1\n',
    "buckets that fall": H + 'h_bucket{le="1.0"} 3\nh_bucket{le="+Inf"} 2\n',
    "buckets out of order": H + 'h_bucket{le="2.0"} 1\nh_bucket{le="1.0"} 1\nh_bucket{le="+Inf"} 1\n',
    "count of another number than the buckets": H + 'h_bucket{le="+Inf"} 3\nh_count 2\nh_sum 1\n',
    "negative bucket": H + 'h_bucket{le="+Inf"} -3\n',
    "quantile above 1": '# TYPE s summary\ns{quantile="2.0"} 1\n',
    "quantile that is no number": '# TYPE s summary\ns{quantile="x"} 1\n',
    "negative quantile value": '# TYPE s summary\ns{quantile="0.5"} -1\n',
    "times that go back": "# TYPE a gauge\na 1 2\na 2 1\n",
    "time of some samples only": "# TYPE a gauge\na 1 1\na 2\n",
    "series of a summary that are mixed": '# TYPE s summary\ns_sum{a="1"} 0\ns_sum{a="2"} 0\ns_count{a="1"} 0\n',
    "negative sum of a summary": "# TYPE s summary\ns_count 1\ns_sum -1\n",
    "name that another family has with a suffix": "# TYPE a_created gauge\na_created 1\n# TYPE a counter\na_total 1\n",
    "exemplar of a sum": H + 'h_bucket{le="+Inf"} 1\nh_count 1\nh_sum 1 # {a="b"} 1\n',
    "exemplar of a gauge": '# TYPE a gauge\na 1 # {b="c"} 1\n',
    "exemplar of 129 characters": '# TYPE c counter\nc_total 1 # {a="' + "x" * 128 + '"} 1\n',
}


def readings(families: Iterable[object]) -> list[tuple[str, dict[str, str], str]]:
    """Return the samples of families of either parser; texts of numbers are equal where NaN is not."""
    return [(s.name, dict(s.labels), repr(float(s.value))) for family in families for s in family.samples]  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", GOOD.values(), ids=GOOD)
def test_good_page_has_the_samples_that_the_library_finds(page: str) -> None:
    assert readings(library(page + END)) == readings(parse(page + END, Format.OPENMETRICS))


@pytest.mark.parametrize("page", [*(page + END for page in BAD.values()), *CUT.values()], ids=[*BAD, *CUT])
def test_bad_page_is_refused_by_both(page: str) -> None:
    with pytest.raises(ValueError):
        list(library(page))
    with pytest.raises(MalformedPage):
        list(parse(page, Format.OPENMETRICS))


@pytest.mark.parametrize("page", BAD_NUMBERS.values(), ids=BAD_NUMBERS)
def test_page_whose_numbers_contradict_each_other_is_left_to_prometheus(page: str) -> None:
    with pytest.raises(ValueError):
        list(library(page + END))
    assert readings(parse(page + END, Format.OPENMETRICS))
