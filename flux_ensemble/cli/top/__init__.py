"""The live view `flux ensemble top`.

    Source ──Picture, once a second──► lines ──► Textual (`app`), rich (`live`), or plain text
       ▲
       └──what the keys ask for: pause, submit, the output of a job

`source` sends requests to the service or reads the files of local runs, in a thread of its own;
`picture` holds the data of one moment; `lines` formats it, independent of a terminal.
"""
