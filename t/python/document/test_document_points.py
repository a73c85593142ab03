"""Parameter values in steps, and from files."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_ensemble.document.bounds import MAX_BYTES, MAX_VALUES
from flux_ensemble.document.lint import Warnings
from flux_ensemble.document.loading import DocumentError, load_mapping, load_text
from flux_ensemble.document.points import Points, RowSelection
from flux_ensemble.document.problems import Problems
from flux_ensemble.document.values import parse_values
from flux_ensemble.scalars import as_text, number
from flux_ensemble.texts import with_guard


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"linspace": [0.1, 0.5, 5]}, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ({"linspace": [5, 5, 1]}, [5.0]),
        ({"linspace": [1, -1, 3]}, [1.0, 0.0, -1.0]),
        ({"logspace": [-3, 0, 4]}, [0.001, 0.01, 0.1, 1.0]),
        ({"logspace": [0, 1, 3]}, [1.0, 10**0.5, 10.0]),
        ({"range": [0.1, 0.5, 0.1]}, [0.1, 0.2, 0.3, 0.4]),
        ({"range": [0.5, 0, -0.2]}, [0.5, 0.3, 0.1]),
        ({"range": [0.5, 3]}, [0.5, 1.5, 2.5]),
        ({"range": [0, 1, 0.25]}, [0.0, 0.25, 0.5, 0.75]),
    ],
)
def test_steps_are_the_decimal_numbers_that_one_would_write(
    entry: dict[str, Any], expected: list[float]
) -> None:
    assert list(parse_values(entry)) == expected


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"linspace": [0, 1]},
         "expected a list such as [first, last, number], the number an integer >= 1, not [0, 1]"),
        ({"linspace": [0, 1, 2.5]},
         "expected a list such as [first, last, number], the number an integer >= 1, "
         "not [0, 1, 2.5]"),
        ({"linspace": [0, 1, 0]},
         "expected a list such as [first, last, number], the number an integer >= 1, "
         "not [0, 1, 0]"),
        ({"linspace": [0, float("inf"), 2]},
         "expected a list such as [first, last, number], the number an integer >= 1, "
         "not [0, inf, 2]"),
        ({"logspace": [0, 400, 2]}, "expected exponents of ten from -300 to 300, not 400"),
        ({"range": [0.5, 1, 0]}, "expected a range such as [start, stop, step], not [0.5, 1, 0]"),
        ({"range": [0.5, True]},
         "expected a range such as [start, stop, step], not [0.5, true]"),
        ({"range": [1.5, 1]}, "expected at least one value, and {range: [1.5, 1]} has none"),
        ({"linspace": [0, 1, 10**30]}, "expected fewer values than a mapping with 1 key has"),
        ({"file": "points.csv"},
         "expected a list of values or {range: [start, stop, step]}, "
         "{linspace: [first, last, number]}, {logspace: [first exponent, last exponent, number]}, "
         "{file: FILE}, {written: [text, ...]}, not a mapping with 1 key"),
        ({"written": ["1.10", 2]}, "expected a value as text, such as '1.10', not 2"),
        ([None],
         "expected text, a number, true or false, not null "
         "(put it in quotes if the text is meant)"),
    ],
)  # fmt: skip
def test_steps_that_are_none_are_refused(entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_values(entry)
    assert str(caught.value) == sentence


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9), st.integers(2, 50))
def test_a_linspace_has_both_its_ends(first: float, last: float, number: int) -> None:
    values = parse_values({"linspace": [first, last, number]})
    assert len(values) == number
    assert (values[0], values[-1]) == (first, last)


def test_steps_take_no_memory() -> None:
    values = parse_values({"range": [0.0, 1e9, 0.001]})
    assert len(values) == 10**12
    assert values[123_456_789] == 123456.789


def test_a_text_with_steps_is_bounded_by_the_longest_float() -> None:
    word = "x" * (128 * 1024 - 1 - 24)
    entry = {"name": "a", "command": [word + "{t}"], "params": {"t": {"linspace": [0, 1, 9]}}}
    load_mapping({"jobs": [entry]}, name="test")
    entry["command"] = [word + "y{t}"]
    with pytest.raises(DocumentError, match="at most 131071 bytes"):
        load_mapping({"jobs": [entry]}, name="test")


def load(directory: Path, text: str, **entry: Any) -> list[dict[str, Any]]:
    """The parameters of each job of a group whose values are in a file with this text."""
    (directory / "points.csv").write_text(text)
    job = {"name": "app", "command": "app", **entry}
    group = load_mapping({"jobs": [job]}, name="test", directory=str(directory)).groups["app"]
    return [params for _, params in group.submission()]


FILE = {"file": "points.csv"}


def test_the_columns_of_a_file_go_side_by_side(tmp_path: Path) -> None:
    text = "\ufeffx,y,unused\n1,0.5,a\n\n2, 1e3 ,b\n"
    assert load(tmp_path, text, params={"x": FILE, "t": [300, 310], "y": FILE}) == [
        {"x": 1, "t": 300, "y": 0.5},
        {"x": 1, "t": 310, "y": 0.5},
        {"x": 2, "t": 300, "y": "1e3"},
        {"x": 2, "t": 310, "y": "1e3"},
    ]


def test_a_file_can_be_zipped_with_other_values(tmp_path: Path) -> None:
    params = {"x": FILE, "y": FILE, "t": [300, 310], "m": "a"}
    assert load(tmp_path, "x,y\n1,3\n2,4\n", params=params, sweep="zip") == [
        {"x": 1, "y": 3, "t": 300, "m": "a"},
        {"x": 2, "y": 4, "t": 310, "m": "a"},
    ]


def test_a_sample_draws_whole_rows(tmp_path: Path) -> None:
    rows = [(x, 2 * x) for x in range(50)]
    text = "x,y\n" + "".join(f"{x},{y}\n" for x, y in rows)
    params = {"x": FILE, "y": FILE, "t": [1, 2]}
    drawn = load(tmp_path, text, params=params, sweep="sample", samples=40)
    assert len({(one["x"], one["t"]) for one in drawn}) == 40
    assert all(one["y"] == 2 * one["x"] for one in drawn)


def test_an_override_of_one_column_leaves_the_others(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("x,y\n1,3\n2,4\n")
    job = {"name": "app", "command": "app", "params": {"x": FILE, "y": FILE}}
    group = load_mapping({"jobs": [job]}, name="test", directory=str(tmp_path)).groups["app"]
    assert [params for _, params in group.submission(params={"x": 7})] == [
        {"x": 7, "y": 3},
        {"x": 7, "y": 4},
    ]


def test_cells_are_numbers_where_yaml_has_them_so_and_else_text(tmp_path: Path) -> None:
    text = 'x\n7\n-1.5\n1e-3\n010\nnan\n"a, b"\nyes\n.5\n"7"\n'
    values = [one["x"] for one in load(tmp_path, text, params={"x": FILE})]
    assert values == [7, -1.5, "1e-3", "010", "nan", "a, b", "yes", ".5", "7"]
    assert list(map(number, values)) == [7, -1.5, 0.001, "010", "nan", "a, b", "yes", 0.5, "7"]


def test_a_cell_that_is_no_number_of_64_bits_is_run_as_it_is_written(tmp_path: Path) -> None:
    cells = ["12e4567", "123456789012345678901234", "0.10", "1E5", "+7", "-0"]
    values = [one["x"] for one in load(tmp_path, "x\n" + "\n".join(cells), params={"x": FILE})]
    assert values == cells


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x,barcode\n1,\n2,12e4567\n3,123456789012345678901234\n", [1, 2, 3]),
        ("note,x,note\na,1,b\nc,2,d\n", [1, 2]),
        ("x,y,\n1,2,\n3,4,\n", [1, 3]),
        ("x,y\n1,2,\n3,4,,\n", [1, 3]),
        ("x,y,z\n1\n2,3\n", [1, 2]),
        ("x\ty\n1\t2,5\n3\t4\n", [1, 3]),
        ("x;y\n1;2,5\n3;4\n", [1, 3]),
        ('x;"a, b, c"\r\n1;2\r\n3;4', [1, 3]),
        ("id,params.x,x\n17,1,a\n18,2,b\n", [1, 2]),
    ],
)  # fmt: skip
def test_columns_that_no_parameter_is_named_after_are_left_alone(
    tmp_path: Path, text: str, expected: list[int]
) -> None:
    assert [one["x"] for one in load(tmp_path, text, params={"x": FILE})] == expected


def test_a_quoted_cell_is_the_text_between_its_quotes(tmp_path: Path) -> None:
    text = 'x\n"1.10"\n" a "\n"say ""no"""\n"two\nlines"\n""\n'
    values = [one["x"] for one in load(tmp_path, text, params={"x": FILE})]
    assert values == ["1.10", " a ", 'say "no"', "two\nlines", ""]
    assert {type(value) for value in values} == {str}


@given(
    st.lists(st.text(st.characters(exclude_characters="\0", codec="utf-8")), min_size=1),
    st.sampled_from(",;\t"),
    st.sampled_from(["\n", "\r\n"]),
)
def test_what_is_quoted_as_csv_says_is_read_as_it_was(
    texts: list[str], separator: str, end: str
) -> None:
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([["x", "y"], *([with_guard(text), "1"] for text in texts)])
    points = Points(lambda name, problems: out.getvalue())
    column = points.column("points.csv", "x", Problems(), ())
    assert column is not None
    assert list(column.values) == texts
    assert not column.empty


def test_an_empty_cell_of_a_used_column_is_an_empty_text_and_a_warning(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("x,y\n1,\n2,\n3,c\n")
    found = Warnings()
    document = 'jobs: [{name: a, command: "run {x}{y}", params: {x: &f {file: points.csv}, y: *f}}]'
    spec = load_text(document, name="t", directory=str(tmp_path), warnings=found)
    assert [params["y"] for _, params in spec.groups["a"].submission()] == ["", "", "c"]
    assert any(
        "jobs[0].params.y: 2 cells of the column 'y' are empty, the first in points.csv:2" in one
        for one in found.warnings
    )


SHEETS = Path(__file__).parent / "sheets"


@pytest.mark.parametrize(
    ("name", "params", "rows"),
    [
        ("single-end.csv", ["sample", "fastq_1", "fastq_2", "strandedness"], 3),
        ("several-lanes.csv", ["patient", "lane", "fastq_1"], 3),
        ("long-reads.csv", ["ID", "LongFastQ", "GenomeSize"], 2),
        ("no-barcode.csv", ["group", "replicate", "barcode", "input_file"], 2),
        ("trailing-commas.csv", ["sample", "fastq_1"], 2),
        ("semicolons.csv", ["sample", "condition"], 2),
        ("quoted.csv", ["sample", "run_accession", "description"], 2),
        ("bom-and-crlf.csv", ["sample", "fastq_1"], 2),
        ("controls.csv", ["sample", "antibody", "control"], 3),
        ("twice.csv", ["sample"], 2),
        ("contrasts.tsv", ["id", "blocking"], 2),
        ("cells.csv", ["sample", "fastq_1", "fastq_2", "expected_cells", "seq_center"], 3),
        ("metadata.tsv", ["sample_id", "subject_id", "age", "biomaterial_provider"], 2),
        ("mixed-quotes.csv", ["sample", "group", "long_reads"], 3),
    ],
)  # fmt: skip
def test_sample_sheets_of_pipelines_are_read(name: str, params: list[str], rows: int) -> None:
    job = {"name": "a", "command": "run", "params": {one: {"file": name} for one in params}}
    group = load_mapping({"jobs": [job]}, name="test", directory=str(SHEETS)).groups["a"]
    assert len(group.submission()) == rows


@pytest.mark.parametrize(
    ("name", "column", "values"),
    [
        ("cells.csv", "expected_cells", ["1,000", "1,000", "5e3"]),
        ("cells.csv", "fastq_2", [
            "s3://bucket/pbmc/1_S1_L001_R2.fastq.gz", "s3://bucket/pbmc/1_S1_L002_R2.fastq.gz",
            "https://host/2_R2.fastq.gz?download=1&raw",
        ]),
        ("metadata.tsv", "subject_id", ["0042", "0043"]),
        ("metadata.tsv", "biomaterial_provider", ['Institute "A", ward 3', "Institute {B}"]),
        ("metadata.tsv", "age", ["25", ""]),
        ("metadata.tsv", "single_cell", ["FALSE", "False"]),
        ("mixed-quotes.csv", "sample", ["1", "1.10", "NO"]),
        ("mixed-quotes.csv", "group", ["0", "0", "00"]),
    ],
)  # fmt: skip
def test_cells_of_a_sample_sheet_are_what_is_written(
    name: str, column: str, values: list[str]
) -> None:
    job = {"name": "a", "command": "run", "params": {column: {"file": name}}}
    group = load_mapping({"jobs": [job]}, name="test", directory=str(SHEETS)).groups["a"]
    assert [as_text(params[column]) for _, params in group.submission()] == values


def test_a_file_of_sections_is_no_sheet() -> None:
    job = {"name": "a", "command": "run", "params": {"fastqs": {"file": "sections.csv"}}}
    with pytest.raises(DocumentError, match=r"sections\.csv"):
        load_mapping({"jobs": [job]}, name="test", directory=str(SHEETS))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", ["points.csv:1: expected a header with the names of parameters"]),
        ("x,y\n", ["points.csv:1: expected at least one row below the header"]),
        ("x,x\n1,2\n",
         ["'points.csv' has several columns 'x': give the others other names"]),
        ("x,y\n1,2\n3,4,5\n",
         ["points.csv:3: expected 2 values, as the header has, not 3"]),
        ("y\n1\n", ["'points.csv' has no column 'x' (columns: y)"]),
        ("temperature,x_\n1,2\n",
         ["'points.csv' has no column 'x' (did you mean 'x_'? columns: temperature, x_)"]),
        ("y,x\n1,2\n\n3\n4,\n",
         ["points.csv:4: expected 2 values, as the header has, not 1"]),
        ('x\n1\n"open\n',
         ["points.csv:3: a '\"' is not closed, or not where a cell ends"]),
        ('x\n"two\nlines"\n"a"b\n',
         ["points.csv:4: a '\"' is not closed, or not where a cell ends"]),
        ("x\n\0\n", ["expected text without the character '\\0' in 'points.csv'"]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_line(
    tmp_path: Path, text: str, sentences: list[str]
) -> None:
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, text, params={"x": FILE})
    found = [(problem.path, problem.message) for problem in caught.value.problems]
    assert found == [("jobs[0].params.x", sentence) for sentence in sentences]


def test_a_file_that_is_missing_or_none_has_a_sentence(tmp_path: Path) -> None:
    params = {"x": {"file": "none.csv"}, "y": {"file": "."}, "z": {"file": 3}}
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, "", params=params)
    assert [problem.message for problem in caught.value.problems] == [
        "cannot read 'none.csv': No such file or directory",
        "expected a file with parameter values, and '.' is none",
        "expected the name of a file, not 3",
    ]


def test_files_are_bounded(tmp_path: Path) -> None:
    for text, sentence in (
        ("x\n" + "1" * MAX_BYTES,
         f"expected at most {MAX_BYTES} bytes in 'points.csv' "
         "('where' and 'limit' choose rows of a larger one)"),
        ("x\n" + "1\n" * MAX_VALUES,
         f"expected at most {MAX_VALUES} values in files of parameter values "
         "('where' and 'limit' choose rows)"),
    ):  # fmt: skip
        with pytest.raises(DocumentError) as caught:
            load(tmp_path, text, params={"x": FILE})
        assert caught.value.problems[0].message == sentence


SAMPLES = (
    "sample,kind,length,version,answer,read depth,row,params.t\n"
    "S1,a,5,1.10,NO,21.5,x,1\n"
    "S2,b,,1.1,no,n/a,y,2\n"
    'S3,a,2,0x1F,"",30,z,3\n'
)


@pytest.mark.parametrize(
    ("where", "samples"),
    [
        ("kind == 'a'", ["S1", "S3"]),
        ("kind in ['b', 'c'] or length > 3", ["S1", "S2"]),
        ("length == ''", ["S2"]),
        ("not length > 3 and kind == 'b'", ["S2"]),
        ("length < 3 or length >= 3", ["S1", "S3"]),
        ("sqrt(length) > 2", ["S1"]),
        ("version == 1.1", ["S1", "S2"]),
        ("version == '1.10'", ["S1"]),
        ("answer == 'NO'", ["S1"]),
        ("answer == ''", ["S3"]),
        ("'no' in answer", ["S2"]),
        ("row['read depth'] != 'n/a' and row['read depth'] > 22", ["S3"]),
        ("row == 'x' or row.row == 'y'", ["S1", "S2"]),
        ("t >= 2 and params.t == t and row['params.t'] < 3", ["S2"]),
        ("  kind=='a'  ", ["S1", "S3"]),
    ],
)
def test_a_condition_chooses_the_rows_of_a_sheet(
    tmp_path: Path, where: str, samples: list[str]
) -> None:
    params = {"sample": {**FILE, "where": where}}
    assert [one["sample"] for one in load(tmp_path, SAMPLES, params=params)] == samples


def test_all_parameters_of_an_entry_that_read_a_file_have_the_same_rows(tmp_path: Path) -> None:
    params = {
        "kind": FILE,
        "sample": {**FILE, "where": "kind == 'a'"},
        "t": {**FILE, "limit": 1},
        "n": [1, 2],
    }
    assert load(tmp_path, SAMPLES, params=params) == [
        {"kind": "a", "sample": "S1", "t": 1, "n": n} for n in (1, 2)
    ]


def test_another_entry_can_use_other_rows_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(SAMPLES)
    jobs = [
        {"name": kind, "command": "run", "params": {"sample": {**FILE, "where": where}}}
        for kind, where in (("a", "kind == 'a'"), ("b", "kind == 'b'"))
    ] + [{"name": "all", "command": "run", "params": {"sample": FILE}}]
    groups = load_mapping({"jobs": jobs}, name="test", directory=str(tmp_path)).groups
    assert {name: len(group.submission()) for name, group in groups.items()} == {
        "a": 2, "b": 1, "all": 3,
    }  # fmt: skip


def test_a_limit_takes_the_first_rows_and_reads_no_further(tmp_path: Path) -> None:
    params = {"x": {**FILE, "limit": 2}}
    assert load(tmp_path, 'x\n1\n\n2\n3,4\n"open\n', params=params) == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize(
    ("given", "place", "sentence"),
    [
        ({"where": "kind == a"}, "where",
         "'points.csv' has no column 'a' (columns: sample, kind, length, version, answer, "
         "read depth, row, params.t; text is written in quotes)"),
        ({"where": "lenght > 3"}, "where",
         "'points.csv' has no column 'lenght' (did you mean 'length'? columns: sample, kind, "
         "length, version, answer, read depth, row, params.t; text is written in quotes)"),
        ({"where": "row['depth'] > 3"}, "where",
         "'points.csv' has no column 'depth' (did you mean 'read depth'? columns: sample, kind, "
         "length, version, answer, read depth, row, params.t)"),
        ({"where": "row['read depth'] > 3"}, "where",
         "points.csv:3: read depth: 'n/a' is text, and 'where' needs a number here (to leave out "
         "such rows, begin with row['read depth'] != 'n/a' and ...)"),
        ({"where": "kind == 'c'"}, "where",
         "it chooses none of the 3 rows of 'points.csv': kind is 'a', 'b'"),
        ({"where": "length = 3"}, "where",
         "expected an expression such as \"kind == 'a'\", not 'length = 3' "
         "(write '==' to compare)"),
        ({"where": "open('x')"}, "where",
         "'open' is not a function of conditions (functions: abs, max, min, round, floor, ceil, "
         "sqrt, exp, log, log2, log10, sin, cos, tan, tanh, pow)"),
        ({"where": 3}, "where", "expected an expression such as \"kind == 'a'\", not 3"),
        ({"limit": 0}, "limit", "expected an integer >= 1, not 0"),
        ({"limit": True}, "limit", "expected an integer >= 1, not true"),
        ({"wher": "length > 3"}, "wher",
         "a file has no key 'wher' (did you mean 'where'? keys beside 'file': where, limit)"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_choice_of_rows_is_said_once(
    tmp_path: Path, given: dict[str, Any], place: str, sentence: str
) -> None:
    params = {"sample": FILE, "kind": {**FILE, **given}, "version": FILE}
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, SAMPLES, params=params)
    found = [(problem.path, problem.message) for problem in caught.value.problems]
    assert found == [(f"jobs[0].params.kind.{place}", sentence)]


def test_two_conditions_for_one_file_are_an_error_that_names_both_places(tmp_path: Path) -> None:
    params = {
        "sample": {**FILE, "where": "kind == 'a'", "limit": 5},
        "kind": {**FILE, "where": "kind == 'b'", "limit": 5},
    }
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, SAMPLES, params=params)
    found = [(problem.path, problem.message) for problem in caught.value.problems]
    assert found == [(
        "jobs[0].params.kind.where",
        "jobs[0].params.sample has another 'where' for 'points.csv', \"kind == 'a'\": columns of "
        "one file go side by side, so give it at one of them",
    )]  # fmt: skip


def test_a_column_that_a_condition_names_has_a_cell_in_each_row(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"points\.csv:3: expected 2 values.*not 1"):
        load(tmp_path, "x,y\n1,2\n3\n", params={"x": {**FILE, "where": "y > 1"}})


def test_of_a_large_sheet_the_chosen_rows_are_kept_and_give_the_same(tmp_path: Path) -> None:
    rows = 300_000
    text = "x,kind,note\r\n" + "".join(
        f'{x},{"ab"[x % 100 == 7]},"note {x}"\r\n' for x in range(rows)
    )
    assert len(text) > MAX_BYTES
    (tmp_path / "points.csv").write_text(text)
    jobs = [
        {"name": "chosen", "command": "run",
         "params": {"x": {**FILE, "where": "kind == 'b'"}, "note": FILE}},
        {"name": "first", "command": "run", "params": {"x": {**FILE, "limit": 3}}},
    ]  # fmt: skip
    files: dict[str, str] = {}

    def values() -> list[list[dict[str, Any]]]:
        groups = load_mapping(
            {"jobs": jobs}, name="test", directory=str(tmp_path), files=files
        ).groups
        return [[params for _, params in group.submission()] for group in groups.values()]

    first = values()
    assert len(first[0]) == rows / 100
    assert first[1] == [{"x": 0}, {"x": 1}, {"x": 2}]
    assert len(files["points.csv"]) < len(text) / 50
    (tmp_path / "points.csv").unlink()
    assert values() == first


def test_a_condition_is_checked_where_its_file_is_not() -> None:
    jobs = [{"name": "a", "command": "x", "params": {"x": {**FILE, "where": "x => 1"}}}]
    with pytest.raises(DocumentError, match="write '>=' for '=>'"):
        load_mapping({"jobs": jobs}, name="test", here=False)
    jobs[0]["params"] = {"x": {**FILE, "where": "x > 1 and class == 'a'"}}
    with pytest.raises(DocumentError, match=r"write row\['class'\] for the column 'class'"):
        load_mapping({"jobs": jobs}, name="test", here=False)


@given(st.lists(st.sampled_from(["1.10", "NO", "007", "x y", "12e4567", "", "0x1F"]), min_size=1))
def test_a_cell_equals_its_spelling(cells: list[str]) -> None:
    text = "x,n\n" + "".join(f"{cell},{n}\n" for n, cell in enumerate(cells))
    for cell in cells:
        points = Points(lambda name, problems: text)
        rows = RowSelection(f"x == {cell!r}")
        column = points.column("points.csv", "n", Problems(), (), rows)
        assert column is not None
        assert list(column.values) == [n for n, one in enumerate(cells) if one == cell]


def test_the_text_of_a_file_is_kept_with_the_document(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("x\n1\n2\n")
    document = "jobs: [{name: app, command: app, params: {x: {file: points.csv}}}]"
    files: dict[str, str] = {}
    load_text(document, name="test", directory=str(tmp_path), files=files)
    (tmp_path / "points.csv").unlink()
    spec = load_text(document, name="test", directory=str(tmp_path), files=files)
    assert len(spec.groups["app"].submission()) == 2
