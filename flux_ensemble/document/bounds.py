"""Limits on the size of a document."""

#: Longest document that is read, in bytes of UTF-8.
MAX_BYTES = 4 * 1024 * 1024

#: Largest sheet of which rows are chosen, in characters.
MAX_SHEET = 128 * 1024 * 1024

#: Most values in a document; an aliased value counts each time it is used.
MAX_VALUES = 250_000

#: Deepest nesting of mappings and lists.
MAX_DEPTH = 64
