"""`python -m headroom` is the same as `headroom`."""

from headroom.cli.main import main

if __name__ == "__main__":
    main()
