"""Requests of clients: their topics, payloads, handlers and responses."""
