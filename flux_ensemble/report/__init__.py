"""The report of ensembles: one HTML file that needs nothing else.

    Source ──gather──► Run ──page──► HTML
      status, metrics,   columns of jobs and firings,
      jobs, log          totals, the best points

A `Source` has everything known about an ensemble (from the service, the local queue, or a
recording: see `recorded`). `gather` reads its jobs and its log once, and keeps columns and totals.
`page` writes these: tables for every reader, and the columns for the scripts in `assets`, which
draw charts.

`assets/uplot` is uPlot 1.6.32 (https://github.com/leeoniya/uPlot), unchanged, with its licence.
"""
