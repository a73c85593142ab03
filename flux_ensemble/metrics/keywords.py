"""Python's syntax trees of expressions, also of those in which keywords follow a dot."""

from __future__ import annotations

import ast
import keyword
import re
import warnings
from itertools import chain, count, product

#: A text in quotes, or a dot with the word after it.
_AFTER_A_DOT = re.compile(
    r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|(?P<dot>\.\s*)(?P<word>[A-Za-z]+)\b"""
)


def parsed(text: str) -> ast.expr:
    """Return the tree of a Python expression.

    Raises:
        SyntaxError, RecursionError, MemoryError: the text is none.

    >>> ast.unparse(parsed("a>1"))
    'a > 1'
    """
    with warnings.catch_warnings():
        # Python's parser prints warnings about the text, besides the errors that it raises.
        warnings.simplefilter("ignore")
        return ast.parse(text, mode="eval").body


def parsed_with_keywords(text: str) -> ast.expr | None:
    """Return the tree of a text that is a Python expression but for keywords after dots.

    Returns:
        None if it is none.

    Raises:
        RecursionError, MemoryError: it is too deep, or too large.

    >>> tree = parsed_with_keywords("memo.yield")
    >>> tree.attr, tree.value.id
    ('yield', 'memo')
    """
    names: dict[str, str] = {}

    def plain(found: re.Match[str]) -> str:
        word = found["word"]
        if word is None or not keyword.iskeyword(word):
            return found[0]
        name = _other_name(word, text)
        names[name] = word
        return found["dot"] + name

    try:
        tree = parsed(_AFTER_A_DOT.sub(plain, text))
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            node.attr = names.get(node.attr, node.attr)
    return tree


def _other_name(word: str, text: str) -> str:
    """Return a name that a text does not have, in place of a keyword.

    It has the same length unless the text has each of these, so that errors name the right column.
    """
    spellings = map("".join, product(*((one.upper(), one.lower()) for one in word)))
    longer = (f"{word}{'_' * times}" for times in count(1))
    return next(
        one for one in chain(spellings, longer) if one not in text and not keyword.iskeyword(one)
    )
