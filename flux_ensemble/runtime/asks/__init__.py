"""Requests for the points of searches, served by one process for each search.

    engine ──Ask──► driver ──► `advisers` ──► `asker` ──pipe──► `runtime.samplers`
                       ▲                                                  │
                       └──────────────────── points ◄─────────────────────┘

The process is one of `runtime.custom`. Only `runtime.samplers` imports an optimiser.
"""
