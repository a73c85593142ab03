"""YAML in, plain values with lines out; nothing that YAML allows gets out of hand."""

from __future__ import annotations

from typing import Any

import pytest

from flux_ensemble.document import yaml_reader as documents
from flux_ensemble.document.bounds import MAX_BYTES, MAX_DEPTH
from flux_ensemble.document.problems import DocumentError
from flux_ensemble.document.yaml_reader import read_yaml


def value(text: str) -> Any:
    """The values of a document without problems."""
    document, problems = read_yaml(text)
    assert not problems.listed()
    return document.value


def refused(text: str) -> str:
    """The sentence about a document that cannot be read."""
    with pytest.raises(DocumentError) as caught:
        read_yaml(text, "d.yaml")
    assert len(caught.value.problems) == 1
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("null", None),
        ("~", None),
        ("true", True),
        ("Yes", True),
        ("OFF", False),
        ("y", "y"),
        ("3", 3),
        ("-3", -3),
        ("+1_000", 1000),
        ("0x1F", 31),
        ("0b101", 5),
        ("1.5", 1.5),
        ("-.5", -0.5),
        ("1.", 1.0),
        ("1e-3", 0.001),
        ("2E5", 2e5),
        ("1.2.3", "1.2.3"),
        ("-", "-"),
        ("0x", "0x"),
        ("[1, two]", [1, "two"]),
        ("{a: b}", {"a": "b"}),
    ],
)
def test_scalars_are_what_yaml_says(text: str, expected: Any) -> None:
    found = value(f"v: [{text}]")
    assert found == {"v": [expected]}
    assert type(found["v"][0]) is type(expected)


@pytest.mark.parametrize(
    "text", ["2024-01-01", "2024-01-01T10:00:00Z", "1:30", "12:30:45", "010", "0755", "0o17", "=1"]
)
def test_what_yaml_would_surprise_people_with_is_text(text: str) -> None:
    assert value(f"v: {text}") == {"v": text}


def test_quotes_and_tags_say_what_a_scalar_is() -> None:
    assert value("a: '3'\nb: !!str 3\nc: !!int '3'\nd: ! 3\ne: !!float 3") == {
        "a": "3",
        "b": "3",
        "c": 3,
        "d": "3",
        "e": 3.0,
    }


def test_json_is_a_document_too() -> None:
    assert value('{"a": [1, 2.5, true, null, "\\u00e9", 1e5]}') == {
        "a": [1, 2.5, True, None, "é", 1e5]
    }


def test_a_very_long_number_is_text() -> None:
    assert value(f"v: {'1' * 5000}") == {"v": "1" * 5000}


def test_every_value_has_its_line() -> None:
    document, _ = read_yaml("a: 1\nb:\n  - x\n  - c: 2\n    d: [3,\n        4]\n")
    assert document.line(()) == 1
    assert document.line(("b",)) == 2
    assert document.line(("b", 0)) == 3
    assert document.line(("b", 1)) == 4
    assert document.line(("b", 1, "d")) == 5
    assert document.line(("b", 1, "d", 1)) == 6


def test_what_is_not_there_has_the_line_of_what_is_around_it() -> None:
    document, _ = read_yaml("a:\n  - {b: 1}\n")
    assert document.line(("a", 0, "c", "d")) == 2


def test_numbers_and_booleans_are_known_as_they_are_written() -> None:
    document, _ = read_yaml("a: [0.10, yes, text]\nb: 1_000")
    assert document.text(("a", 0)) == "0.10"
    assert document.text(("a", 1)) == "yes"
    assert document.text(("a", 2)) is None
    assert document.text(("b",)) == "1_000"


def test_a_block_knows_where_its_text_begins() -> None:
    document, _ = read_yaml("a: 1\ncustom: |\n  def f(): ...\nfolded: >\n  text\n")
    assert document.block_line(("custom",)) == 3
    assert document.block_line(("replayed",)) is None


def test_aliases_stand_for_what_they_name() -> None:
    assert value("a: &x {k: [1]}\nb: *x\nc: [*x]") == {
        "a": {"k": [1]},
        "b": {"k": [1]},
        "c": [{"k": [1]}],
    }


def test_an_alias_has_the_line_where_it_stands_and_its_parts_have_theirs() -> None:
    document, _ = read_yaml("a: &x\n  k: 1\nb: *x")
    assert document.line(("b",)) == 3
    assert document.line(("b", "k")) == 2


def test_merge_keys_add_what_is_not_there_in_order() -> None:
    text = "a: &a {x: 1, y: 2}\nb: &b {y: 3, z: 4}\nc:\n  w: 0\n  <<: [*a, *b]\n  x: 9\n"
    merged = value(text)["c"]
    assert merged == {"w": 0, "x": 9, "y": 2, "z": 4}
    assert list(merged) == ["w", "x", "y", "z"]


def test_merged_keys_keep_their_lines_and_their_text() -> None:
    document, _ = read_yaml("a: &a\n  x: 0.10\n  s: |\n    text\nb:\n  <<: *a\n")
    assert document.line(("b", "x")) == 2
    assert document.text(("b", "x")) == "0.10"
    assert document.block_line(("b", "s")) == 4


def test_a_quoted_merge_key_is_a_key() -> None:
    assert value("a: {'<<': 1}") == {"a": {"<<": 1}}


def test_a_duplicate_key_is_a_problem_and_the_first_is_kept() -> None:
    document, problems = read_yaml("a:\n  - b: 1\n    c: 2\n    b: {d: 3}\n")
    assert document.value == {"a": [{"b": 1, "c": 2}]}
    assert problems.listed() == [(4, "a[0].b", "duplicate key 'b' (first on line 2)")]


def test_words_that_are_true_or_false_are_text_as_keys() -> None:
    assert value("on: yes\nno: [off]") == {"on": True, "no": [False]}


def test_two_merge_keys_merge_both() -> None:
    assert value("a: &a {x: 1}\nb: {<<: *a, <<: {y: 2}}")["b"] == {"x": 1, "y": 2}


@pytest.mark.parametrize("key", ["1", "1.5", "true", "~"])
def test_a_key_that_is_not_text_is_a_problem(key: str) -> None:
    document, problems = read_yaml(f"a:\n  {key}: x\n  b: y\n")
    assert document.value == {"a": {"b": "y"}}
    assert problems.listed() == [
        (2, "a", f"expected a key that is text, not {key} (put it in quotes)")
    ]


def test_a_list_without_brackets_is_one_problem() -> None:
    document, problems = read_yaml("a: {range: 1, 10}\nb: {1, 2}\n")
    assert document.value == {"a": {"range": [1, 10]}, "b": {}}
    assert problems.listed() == [
        (1, "a", "a list has brackets: 'range: [1, 10]'"),
        (2, "b", "expected a key that is text, not 1 (a list has brackets: [1, 2])"),
        (2, "b", "expected a key that is text, not 2 (a list has brackets: [1, 2])"),
    ]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "d.yaml: the document is empty"),
        ("# only a comment\n", "d.yaml: the document is empty"),
        ("---\n...\n", "d.yaml: the document is empty"),
        ("a: 1\n---\nb: 2\n", "d.yaml:2: expected one document, not several"),
        (
            "a:\n\t- b\n",
            "d.yaml:2: malformed YAML: found character that cannot start any token "
            "(YAML is indented with spaces, not with tabs)",
        ),
        (
            "a: b: c",
            "d.yaml:1: malformed YAML: mapping values are not allowed in this context "
            "(put the value in quotes: a: 'b: c')",
        ),
        (
            "a:\n  b: [1, 2\nc: 3\n",
            "d.yaml:2: malformed YAML: while parsing a flow sequence from line 2, "
            "did not find expected ',' or ']' (a ']' is missing)",
        ),
        (
            "a:\n  - b\n c: d\n",
            "d.yaml:3: malformed YAML: while parsing a block mapping from line 1, "
            "did not find expected key",
        ),
        ("a: 'x", "d.yaml:1: malformed YAML: found unexpected end of stream"),
        ("a: \x01", "d.yaml:1: malformed YAML: the character '\\x01' is not allowed"),
        ("a: 1\nb: \x00", "d.yaml:2: malformed YAML: the character '\\x00' is not allowed"),
        ("a: 1\nb: \ud800", "d.yaml:2: expected UTF-8 text"),
        ("a: *x", "d.yaml:1: the alias '*x' has no anchor '&x' before it"),
        ("a: &x\n  - *x", "d.yaml:2: the alias '*x' stands inside of what it names"),
        ("? [a]\n: b", "d.yaml:1: expected a key that is text, not a mapping or list"),
        (
            "a: &x [1]\n*x : 2",
            "d.yaml:2: expected a key that is text, not a mapping or list",
        ),
        ("<<: 3", "d.yaml:1: '<<' merges mappings, not 3"),
        ("<<: [{a: 1}, b]", "d.yaml:1: '<<' merges mappings, not 'b'"),
        ("a: !!set {b}", "d.yaml:1: the tag '!!set' is not supported"),
        ("a: !mine b", "d.yaml:1: the tag '!mine' is not supported on 'b'"),
        ("a: !!int b", "d.yaml:1: the tag '!!int' is not supported on 'b'"),
        (
            "a: !!python/object/apply:os.system [x]",
            "d.yaml:1: the tag '!!python/object/apply:os.system' is not supported",
        ),
        ("%YAML 3.0\n--- a", "d.yaml:1: malformed YAML: found incompatible YAML document"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(text: str, sentence: str) -> None:
    assert refused(text) == sentence


def test_a_document_has_a_largest_size() -> None:
    assert refused("x" * (MAX_BYTES + 1)) == (
        "d.yaml: a document has at most 4194304 bytes, not 4194305"
    )


def test_a_document_nests_to_a_limit() -> None:
    deepest = MAX_DEPTH
    assert value("[" * deepest + "]" * deepest)
    sentence = "d.yaml:1: a document nests at most 64 levels deep"
    assert refused("[" * (deepest + 1) + "]" * (deepest + 1)) == sentence
    assert refused("[" * 100_000) == sentence


def test_aliases_nest_to_the_same_limit() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 70)]
    assert refused("\n".join(lines)) == ("d.yaml:64: a document nests at most 64 levels deep")


def test_aliases_do_not_multiply_without_end() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for i in range(1, 30):
        lines.append(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]")
    assert refused("\n".join(lines)) == "d.yaml:6: a document has at most 250000 values"


def test_a_document_has_a_largest_number_of_values() -> None:
    assert refused("[" + "a," * 1_000_000 + "]") == (
        "d.yaml:1: a document has at most 250000 values"
    )


def test_the_parser_in_python_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: &x {b: [1, 0.10, yes]}\nc: *x\nd: |\n  text\ne:\n  <<: *x\n"
    expected, _ = read_yaml(text)
    monkeypatch.setattr(documents, "_PARSER", documents.yaml.SafeLoader)
    found, _ = read_yaml(text)
    assert found.value == expected.value
    assert found.line(("e", "b", 1)) == expected.line(("e", "b", 1)) == 1
    assert refused("a: [b\n").startswith("d.yaml:1: malformed YAML: ")
