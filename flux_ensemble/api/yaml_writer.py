"""Output of plain data as a YAML document, from which the document reader gets the same data."""

from __future__ import annotations

import math
import re
from typing import Any

import yaml

from flux_ensemble.scalars import plain_scalar

#: Characters that also end a line in YAML, and would be read as a line feed.
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")

#: Numbers that are text to YAML 1.1, and numbers in documents.
_EXPONENT = re.compile(r"-?[0-9](\.[0-9]+)?e[-+][0-9]+$")


class _Writer(yaml.SafeDumper):
    """A writer for words whose meaning in documents differs from that in YAML 1.1."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, text: str) -> yaml.ScalarNode:
        style = None
        if type(plain_scalar(text)) is not str or _OTHER_BREAKS.search(text):
            style = '"'
        elif "\n" in text:
            style = "|"
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def represent_number(self, value: float) -> yaml.ScalarNode:
        if not math.isfinite(value):
            return self.represent_float(value)
        # The default is 1.0e-05, which a command would have, too.
        return self.represent_scalar("tag:yaml.org,2002:float", str(value))


_Writer.add_representer(str, _Writer.represent_text)
_Writer.add_representer(float, _Writer.represent_number)
_Writer.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-123456789"))


def to_yaml(document: Any) -> str:
    r"""Return the text of a document.

    >>> print(to_yaml({"jobs": [{"name": "a", "command": ["echo", "1e-3", "no"]}]}), end="")
    jobs:
    - name: a
      command:
      - echo
      - "1e-3"
      - "no"
    """
    text: str = yaml.dump(document, Dumper=_Writer, sort_keys=False, allow_unicode=True, width=100)
    return text
