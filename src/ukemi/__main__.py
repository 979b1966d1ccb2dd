"""`python -m ukemi`, and `torchrun … -m ukemi`."""

from ukemi.cli import main

if __name__ == "__main__":
    main()
