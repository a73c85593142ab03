"""Searches: a suggester chooses the parameters of a group's jobs, and learns from their outcomes.

    action `search` ──► `engine` ──Ask──► driver ──► `advisers` ──► `samplers`, or `generator`
                           ▲                                             │
                           └───────────────── points ◄───────────────────┘

`keys`, `reader` and `model` have what a document says of a search, `trials` what came of its
points, `state` the search while it runs.
"""
