"""Tables of the docs that follow from a table of the package."""

from __future__ import annotations

import pytest
from field_tables import DOCS, TABLES, written


@pytest.mark.parametrize("page", TABLES)
def test_the_fields_of_a_job_in_the_docs_are_those_of_the_table(page: str) -> None:
    """`make tables` writes them anew."""
    assert (DOCS / page).read_text() == written(page)
