"""Results of an ensemble, for commands and for Python: reasons, output, best jobs, files.

    Client, LocalClient ──jobs──► failures     why jobs failed, and what they have in common
                        ──jobs──► export       files of jobs
                        ──job───► job_output   what a job wrote
                        ──status► best         the best jobs and trials
                        ──all───► sources ──► report

Nothing here prints, and errors are those of a client.
"""
