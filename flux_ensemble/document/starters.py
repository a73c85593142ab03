"""Documents to begin with: the examples, as they come with the package.

A wheel has them, and the schema for editors, as files of the package; in a clone they are those of
the folder `examples`.
"""

from __future__ import annotations

from pathlib import Path

import flux_ensemble

#: What yaml-language-server looks for in a document.
MODELINE = "# yaml-language-server: $schema="


class Starters:
    """The templates of `init`.

    >>> "hello-world" in Starters().names()
    True
    """

    def __init__(self) -> None:
        package = Path(flux_ensemble.__path__[0])
        installed = package / "examples"
        self._directory = installed if installed.is_dir() else package.parent / "examples"

    def names(self) -> list[str]:
        """Return the names of the starters, in order."""
        return sorted(path.stem for path in self._directory.glob("*.yaml"))

    def summary(self, name: str) -> str:
        """Return the summary of a starter: the first sentence of its first comment.

        >>> Starters().summary("hello-world").isprintable()
        True
        """
        words: list[str] = []
        for line in self._text(name).splitlines():
            if not line.strip("# "):
                break
            words.append(line.lstrip("# ").rstrip())
        return " ".join(words).partition(". ")[0].rstrip(".:")

    def document(self, name: str) -> str:
        """The text of one, with a line for editors in front."""
        return f"{MODELINE}{schema_file().as_uri()}\n{self._text(name)}"

    def sheets(self, name: str) -> dict[str, str]:
        """Return the texts of the sheets that one reads, by their names.

        >>> list(Starters().sheets("sample-sheet")), Starters().sheets("hello-world")
        (['samples.csv'], {})
        """
        text = self._text(name)
        return {
            path.name: path.read_text(encoding="utf-8")
            for path in sorted(self._directory.glob("*.csv"))
            if f"file: {path.name}" in text
        }

    def _text(self, name: str) -> str:
        return (self._directory / f"{name}.yaml").read_text(encoding="utf-8")


def schema_file() -> Path:
    """The file with the schema for editors: `document.editor_schema`, written down.

    >>> schema_file().name
    'ensemble.schema.json'
    """
    return Path(__file__).resolve().parent / "ensemble.schema.json"
