# The table of the points, of the record of the run.
flux-ensemble jobs springs --group spring --filter 'outcome == "success"' -n -o 'sort:params.k {params.k} {params.dt} {memo.energy}' >table.txt
