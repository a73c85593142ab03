"""The exporter of metrics: what `ensemble.status` says, for Prometheus and what reads its formats.

    status ──families──► metric families ──► server, or textfile

It is a client like others, never a part of the service: a scrape costs one request for the status.
"""
