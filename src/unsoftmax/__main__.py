"""`python -m unsoftmax`: the command line."""

from unsoftmax.cli import main

main()
