"""Ensembles from Python: a document made of objects, runs of it, and its display in notebooks.

    Ensemble ──► document, the same as from YAML ──► checked by `document`
       │
       └──run, simulate, attach──► a host: the service of a Flux instance, or the local queue

`flux_ensemble` exports what users need of it: `Ensemble`, `Job`, `Rule`, `Action`, `AsyncClient`.
"""
