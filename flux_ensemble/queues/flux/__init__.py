"""Jobs in Flux's queue: submission, delivery, cancellation, and the job manager's journal.

`broker` makes calls, `queue` submits for all ensembles of a service, and `member` is one ensemble's
view of it. Responses can be lost, so `delivery` and `fence` find out the outcome of a submission.
"""
