"""`phloem top`: a running server, live in the terminal.

::

    command ──► history   the polls of the last minute: rates, percentiles, by differences between them
                   │
                sample    one poll: /statistics and /metrics; /cache and /page/now now and then
                   │
                 frame    drawn by rich, for a terminal of any size from 80x24 on

The tree costs a server up to a second of a worker each time it is asked for; all else is counted anyway. rich is
imported when the command runs.
"""

from .command import top as top
