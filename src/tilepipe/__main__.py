"""`python -m tilepipe`."""

from tilepipe.cli import main

if __name__ == "__main__":
    main()
