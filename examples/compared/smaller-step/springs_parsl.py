"""Each point begins with the largest step, and has half of it whenever its simulation blew up."""

from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path

import parsl
from parsl import bash_app
from parsl.app.errors import BashExitFailure
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor

STEP = 0.1
SMALLEST = STEP / 8


@bash_app
def spring(k, dt, stdout=parsl.AUTO_LOGNAME, stderr=parsl.AUTO_LOGNAME):
    return f"sh spring.sh {k} {dt}"


def main():
    table, left_over = [], []
    runs = {spring(k, STEP): (k, STEP) for k in [1, 100, 900, 10000, 1000000]}
    while runs:
        done, _ = wait(runs, return_when=FIRST_COMPLETED)
        for future in done:
            k, dt = runs.pop(future)
            try:
                future.result()
                energy = Path(future.stdout).read_text().strip().removeprefix("energy=")
                table.append((k, dt, energy))
            except BashExitFailure as failure:
                if failure.exitcode == 3 and dt > SMALLEST:
                    runs[spring(k, dt / 2)] = (k, dt / 2)
                else:
                    print(f"k = {k}, dt = {dt}: {failure}, see {future.stderr}")
                    left_over.append(k)
    Path("table.txt").write_text("".join(f"{k} {dt} {e}\n" for k, dt, e in sorted(table)))
    Path("left-over.txt").write_text("".join(f"{k}\n" for k in left_over))


if __name__ == "__main__":
    with parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=4)])):
        main()
