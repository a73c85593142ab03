"""`python -m flux_ensemble`: the command, for those whose PATH does not have it."""

from flux_ensemble.cli.main import main

if __name__ == "__main__":
    main()
