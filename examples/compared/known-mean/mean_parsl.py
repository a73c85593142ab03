"""Eight walks, and eight more until their mean is known to 20 %; walks that fail are left out."""

from pathlib import Path
from statistics import mean, stdev

import parsl
from parsl import python_app
from parsl.config import Config
from parsl.dataflow.memoization import BasicMemoizer  # to go on
from parsl.executors import ThreadPoolExecutor
from scipy.stats import t


@python_app(cache=True)  # to go on
def walk(seed):
    import subprocess

    words = ["sh", "walk.sh", str(seed)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.strip().removeprefix("distance="))


def main():
    distances = []
    for batch in range(50):
        walks = [walk(seed) for seed in range(8 * batch, 8 * batch + 8)]
        for future in walks:
            if future.exception():
                print(future.exception())
            else:
                distances.append(future.result())
        n = len(distances)
        half = t.ppf(0.975, n - 1) * stdev(distances) / n**0.5
        if half < 0.2 * mean(distances):
            text = f"distance {round(mean(distances), 2)} +- {round(half, 2)}, of {n} walks\n"
            Path("answer.txt").write_text(text)
            return


if __name__ == "__main__":
    config = Config(
        executors=[ThreadPoolExecutor(max_threads=4)],
        memoizer=BasicMemoizer(checkpoint_mode="task_exit"),  # to go on
    )
    with parsl.load(config):
        main()
