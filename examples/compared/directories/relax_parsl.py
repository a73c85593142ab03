"""A task for each row of a sheet, in a directory of its own with links to its input files."""

import csv

import parsl
from parsl import bash_app
from parsl.config import Config
from parsl.executors import ThreadPoolExecutor


@bash_app
def relax(structure, temperature, stdout=None, stderr=None):
    from pathlib import Path

    directory = Path("runs", structure)
    directory.mkdir(parents=True, exist_ok=True)
    for name in ("relax.sh", "in.relax", f"structures/{structure}.cif"):
        link = directory / Path(name).name
        if not link.exists():
            link.symlink_to(Path(name).resolve(strict=True))
    return f"cd {directory} && sh relax.sh {structure} {temperature}"


def main():
    with open("structures.csv") as sheet:
        runs = {row["structure"]: relax(**row) for row in csv.DictReader(sheet)}
    for structure, future in runs.items():
        if future.exception():
            print(f"{structure}: {future.exception()}")


if __name__ == "__main__":
    with parsl.load(Config(executors=[ThreadPoolExecutor(max_threads=4)])):
        main()
