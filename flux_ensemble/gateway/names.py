"""The pattern of clusters' names in options, requests and certificates."""

from __future__ import annotations

import re

#: NAME or NAMESPACE/NAME, of letters, digits, dots, dashes and underscores; for `fullmatch`.
CLUSTER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}(/[A-Za-z0-9][A-Za-z0-9._-]{0,252})?")
