"""How large a document may be."""

#: Longest document that is read, in bytes of UTF-8.
MAX_BYTES = 4 * 1024 * 1024

#: Most values in a document, what an alias stands for counted each time.
MAX_VALUES = 250_000

#: Deepest nesting of mappings and lists.
MAX_DEPTH = 64
