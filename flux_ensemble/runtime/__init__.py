"""What runs one ensemble, on any queue: the driver, its log, and what makes it durable.

`ports` has every contract between an ensemble and the world. Nothing here knows Flux, files of
the local queue, or more than one ensemble.
"""
