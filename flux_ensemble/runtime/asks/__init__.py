"""Searches: their points are asked for in a process of their own, one for each search.

    engine ──Ask──► driver ──► `advisers` ──► `asker` ──pipe──► `runtime.samplers`
                       ▲                                                  │
                       └──────────────────── points ◄─────────────────────┘

The process is one of `runtime.custom`. Only `runtime.samplers` imports an optimiser.
"""
