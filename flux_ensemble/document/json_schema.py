"""The import of jsonschema, which takes 0.1 s: so it comes late, with the first check of a form."""

from __future__ import annotations

import sys
import threading
from functools import cache
from typing import Any

#: A package that jsonschema imports if it is there, for the formats of internationalized URIs. It
#: computes its grammar when it is imported, which takes seconds. JupyterLab installs it.
_SLOW = "rfc3987_syntax"

#: One thread at a time hides the slow package: the operator checks several documents at once.
_HIDING = threading.Lock()


@cache
def jsonschema() -> Any:
    """Return the module, imported without the formats that take seconds to import.

    No schema here has these formats, nor are formats checked by jsonschema.

    >>> jsonschema().Draft202012Validator({"type": "integer"}).is_valid(3)
    True
    """
    with _HIDING:
        sys.modules.setdefault(_SLOW, None)  # type: ignore[arg-type]
        try:
            import jsonschema
        finally:
            if sys.modules[_SLOW] is None:
                del sys.modules[_SLOW]
    return jsonschema
