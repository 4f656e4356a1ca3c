"""Which doors of a server are open, from a few read-only requests, and what each gives away.

doors    the doors: how to knock, and what an open one means
survey   knocking at all of them
"""

from unsoftmax.exposure.survey import Exposure, Finding, exposure

__all__ = ["Exposure", "Finding", "exposure"]
