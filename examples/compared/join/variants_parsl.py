"""A sample is called when its lanes are aligned and it is checked, and all of that succeeded."""

from pathlib import Path
from statistics import mean

import parsl
from parsl import bash_app, python_app
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor

SAMPLES = ["s1", "s2", "s3"]
LANES = [1, 2]


@python_app
def align(sample, lane):
    import subprocess

    words = ["sh", "align.sh", sample, str(lane)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    return float(done.stdout.strip().removeprefix("depth="))


@bash_app
def qc(sample):
    return f"sh qc.sh {sample}"


@bash_app
def call(sample, inputs=()):
    *depths, _ = inputs
    return f"sh call.sh {sample} {mean(depths)}"


def main():
    before = {s: [*(align(s, lane) for lane in LANES), qc(s)] for s in SAMPLES}
    called = {s: call(s, inputs=before[s]) for s in SAMPLES}
    left_out = []
    for sample, future in called.items():
        if future.exception():
            errors = [error for one in before[sample] if (error := one.exception())]
            left_out.append(f"{sample}: {len(errors)} of {len(before[sample])} jobs failed\n")
            print(sample, *errors)
    Path("left-out.txt").write_text("".join(left_out))


if __name__ == "__main__":
    with parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=4)])):
        main()
