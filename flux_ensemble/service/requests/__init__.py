"""Requests of clients: which there are, what they may hold, and how they are answered."""
