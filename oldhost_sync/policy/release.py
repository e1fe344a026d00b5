"""Two releases of decisions. What a machine does is kept in its run's history and must be the same whenever that is
replayed.

So what it does differently from 0.2 on it does in release 2 only; runs begun before 0.2 stay with release 1 until they
are followed by a new one.
"""

RELEASE = 2
RELEASE_MIN = 1
