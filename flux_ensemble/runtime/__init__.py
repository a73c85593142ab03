"""The parts that run one ensemble, on any queue: the driver, the log, and durability.

`ports` has every contract between an ensemble and its surroundings. Nothing here uses Flux, knows
the files of the local queue, or handles more than one ensemble.
"""
