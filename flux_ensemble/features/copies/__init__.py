"""Copies: a second job does the same work beside the first, and the first success counts."""
