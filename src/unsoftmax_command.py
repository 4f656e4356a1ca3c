"""Entry point of the command `unsoftmax`.

It stands beside the package: importing anything inside loads numpy and scipy first, and a Ctrl-C in that second would
end in a traceback.
"""

import sys

_INTERRUPTED = 130
"""The exit code of a shell's Ctrl-C, as in `unsoftmax.cli.exits`, which cannot be imported yet."""


def main() -> None:
    """Run the command line; an interrupt while it is being loaded ends as quietly as a later one."""
    try:
        from unsoftmax.cli.app import app
    except KeyboardInterrupt:
        sys.exit(_INTERRUPTED)
    app()
