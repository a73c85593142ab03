"""The processes that start the jobs of a local queue, and end them if the queue dies.

`queues.local.processes` starts them as

    python -I -S -X utf8 supervisor/__main__.py CHANNEL THEIRS OURS OUTPUT SCRATCH [HELD]

CHANNEL is the file descriptor of a stream socket that carries one JSON object a line:

    queue → supervisor   {"environment": {...}}                             once
                         {"start": ID, "tasks": N, "nodes": N, "command": [...], "cwd",
                          "environment": {...}, "whole": bool, "cores": [N, ...],
                          "stdout" or null, "stderr" or null}
                         {"signal": ID, "number": N}
    supervisor → queue   {"started": ID, "t": T, "clock": C, "group": PGID}
                         {"refused": ID, "note", "status"}
                         {"unkept": ID, "note"}
                         {"ended": ID, "t": T, "clock": C, "status", "cpu": N, "rss": N}

T is in epoch seconds, and C is the same on the monotonic clock, for time limits: the queue may have
much else to do before it reads these. CPU is the processor time of a job
in microseconds, and RSS the peak memory of its largest process in KiB: of its tasks, and of their
children that were waited for. A process inherits the peak of the one that starts it, so RSS is at
least that of the supervisor.

The tasks of a job are one process group. When the last of them ends, the rest of the group is
killed. If the document names no file for a job's output, it goes to ID.out in the directory whose
descriptor is OUTPUT.

    queue ──► guard ──► supervisor ──► tasks ──► their children
                └─ as "subreapers", both adopt processes whose parents have ended

If the queue or the guard is gone, the supervisor kills every process that came from a job, removes
the directory SCRATCH, and exits. The guard only waits: it does the same when the supervisor is
gone. If the queue is gone and the supervisor does not end, because it is stopped or hangs, the
guard wakes it, and kills it after a while. While one of the two lives, no process of a job outlives
the queue; and neither ends the other as long as that one does its work.

HELD is a descriptor that stays open until the last process of a job is gone. When the queue is
gone, the guard gives its file the time, because nobody else knows when a killed queue went; one
that closes takes that back.

If queue, guard and supervisor are killed together, the kernel ends the jobs. THEIRS and OURS are
ends of pipes whose other ends the queue has. With the one, the supervisor ties the process group
of each job to the queue; with the other, the queue ties it to the supervisor (`ties.Ties`).

    guard.py      the two processes, and how they end
    jobs.py       the supervisor: it talks to the queue, and starts and reaps jobs
    tasks.py      the start of one process: its directory, its files, its program
    children.py   children that ended, and how to kill all descendants
    ties.py       process groups that the kernel kills; the queue uses it too

It needs nothing but the standard library, to start quickly and to stay small: starting a process
costs more in a large one. Its modules import each other relatively, because this process does not
import `flux_ensemble`.
"""
