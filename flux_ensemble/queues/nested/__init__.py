"""Members that are Flux instances of their own, jobs of the enclosing instance or reached by a URI.

    Site ──► MemberJob, one each ──► Instance ──► NestedMember, one for each ensemble

`site` starts them and finds those of an earlier service; `member_job` is the life of one, from its
start until nothing of it can run any more; `instance` is what the service does in one of them, with
its own handle (`connection`, `proxy`, `route`), reactor (`pump`), queue (`outbox`) and journal;
`member` is an ensemble's view of it. Where a member has a service of its own, `attached` is in
place of both, and `link` has what the two services say to each other. What became of the jobs of
one that is gone is told by `attempts` and `interruptions`, which know no Flux.
"""
