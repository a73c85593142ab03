"""The report of ensembles: one HTML file that needs nothing else.

    Source ──gather──► Run ──page──► HTML
      status, metrics,   columns of jobs and firings,
      jobs, log          totals, the best points

A `Source` is what is known of an ensemble (of the service, the local queue, or a recording: see
`recorded`). `gather` goes once through its jobs and its log, and keeps columns and totals. `page`
writes these: tables for everybody, and the columns for the scripts in `assets`, which draw.

`assets/uplot` is uPlot 1.6.32 (https://github.com/leeoniya/uPlot), unchanged, with its licence.
"""
