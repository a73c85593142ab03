"""The exporter of metrics: `ensemble.status` for Prometheus, and other readers of its formats.

    status ──families──► metric families ──► server, or textfile

It is a client like others, not a part of the service: a scrape costs one status request.
"""
