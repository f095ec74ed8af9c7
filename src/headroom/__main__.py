"""`python -m headroom` is the same as `headroom`."""

from headroom.cli.program import main

if __name__ == "__main__":
    main()
