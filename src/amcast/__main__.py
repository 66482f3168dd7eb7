"""`python -m amcast`: the command amcast."""

from amcast.cli import main

if __name__ == "__main__":
    main()
