"""Tokens, which a client presents if the connection does not identify its user.

A token is in a file that only its user can read. The server creates the file if it is missing, and
clients of the same user read it: `Authorization: Bearer TOKEN`.
"""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from flux_ensemble import files

#: The shortest valid token, in characters.
SHORTEST = 16

#: The largest file of a token, in bytes.
_LARGEST = 4096


class TokenError(Exception):
    """A file has no valid token; the text is one sentence."""


def read_token(path: Path) -> str:
    """Read the token in a file.

    Raises:
        TokenError: another user owns the file or can read it, or it has no valid token.
    """
    try:
        text = files.read(path, limit=_LARGEST, private=True).decode("ascii", "replace").strip()
    except files.ForeignFile as error:
        raise TokenError(str(error)) from None
    except OSError as error:
        raise TokenError(f"cannot read {path}: {error.strerror}") from None
    if len(text) < SHORTEST or not text.isprintable() or not text.isascii():
        raise TokenError(f"{path}: expected a token of at least {SHORTEST} printable characters")
    return text


def read_or_make_token(path: Path) -> str:
    """Read the token in a file; create it, for the user only, if it is missing.

    Raises:
        TokenError: as `read_token`, or it cannot be created.
    """
    try:
        fd = files.create(path, mode=0o600, new=True)
    except FileExistsError:
        return read_token(path)
    except files.ForeignFile as error:
        # That the existing file is another user's is more helpful than that it exists.
        raise TokenError(str(error)) from None
    except OSError as error:
        raise TokenError(f"cannot make {path}: {error.strerror}") from None
    with os.fdopen(fd, "w") as file:
        token = secrets.token_urlsafe(32)
        file.write(f"{token}\n")
    return token


def presents(given: str, token: str) -> bool:
    """Return True if the value of an `Authorization` header presents the token."""
    return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
