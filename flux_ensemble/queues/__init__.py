"""Queues that run jobs: Flux's, this machine's, and simulated ones.

`flux` and `virtual` are queues; `elastic` changes the size of a Flux instance; `local` runs jobs as
processes on a virtual cluster, `simulation` in virtual time. A member performs commands and
reports their outcomes; the engine decides when jobs are submitted.
"""
