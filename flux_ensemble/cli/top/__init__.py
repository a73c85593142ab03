"""The live view `flux ensemble top`.

    Source ──Picture, once a second──► lines ──► Textual (`app`), rich (`live`), or plain text
       ▲
       └──what the keys ask for: pause, submit, the output of a job

`source` asks the service or reads the files of local runs, in a thread of its own; `picture` is
what is known at one moment; `lines` makes lines of it, which know nothing of a terminal.
"""
