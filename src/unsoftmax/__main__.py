"""`python -m unsoftmax` is the command `unsoftmax`."""

from unsoftmax_command import main

if __name__ == "__main__":
    main()
