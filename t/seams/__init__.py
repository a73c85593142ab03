"""Seams: features of documents by situations, what each cell comes to, and one judge of it.

`features` makes documents, `local` runs them and has situations happen to the run, `evidence`
collects what the jobs' own side effects and each command say of it, and `judge` holds these against
each other. `matrix` has the table of cells, and the command; README.md says how to add a row.
"""
