"""`python -m swell`: the same as the command `swell`."""

from swell.cli.main import main

if __name__ == "__main__":
    main()
