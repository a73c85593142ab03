"""The write-ahead log of an ensemble: how it is written, and how it is replayed."""
