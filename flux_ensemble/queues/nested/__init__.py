"""Members that are Flux instances of their own, jobs of the enclosing instance or reached by a URI.

    Site ──► MemberJob, one each ──► Instance ──► NestedMember, one for each ensemble

`site` starts the members and finds those of an earlier service; `member_job` is the life of one,
from its start until nothing of it can run any more; `instance` is the service's access to one of
them, with a handle (`connection`, `proxy`, `route`), reactor (`pump`), queue (`outbox`) and journal
of its own; `member` is an ensemble's view of it. If a member has a service of its own,
`service_handle` replaces both, and `link` carries the messages between the two services. `attempts`
and `interruptions` decide the outcome of the jobs of a member that is gone; they do not use Flux.
"""
