"""The memory that a run takes for what it keeps of several clusters, so that none takes that of the others."""

from __future__ import annotations

from threading import Lock

from jobs.kit.values.errors import TooMuchError

MOST = 224 << 20  # a run has 384 MiB (cronjobs/): the rest is for the hub, its sources, and answers in flight
MOST_OF_ONE = MOST // 2  # so that one cluster leaves room for another large one
ALWAYS = 6 << 20  # of each cluster, whatever others take: 500 namespaces with 10 new copies each
_BYTES_OF_A_FINDING = 700  # with its write and result


class Memory:
    """The bytes that are kept of all clusters."""

    def __init__(self) -> None:
        self.used = 0
        self.lock = Lock()


class Share:
    """The bytes that are kept of one cluster: of what was read, and of the findings about it."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._read = self._of_findings = 0

    def take(self, size: int) -> None:
        """Count bytes of an object that was read.

        Raises:
            TooMuchError: they do not fit.
        """
        self._read += size
        self._add(size)
        if self._room() < 0:
            raise TooMuchError

    def most_findings(self) -> int:
        """Return how many findings fit in place of those that were counted."""
        return (self._room() + self._of_findings) // _BYTES_OF_A_FINDING

    def keep_findings(self, number: int) -> None:
        """Count the findings of the latest plan."""
        size = number * _BYTES_OF_A_FINDING
        self._add(size - self._of_findings)
        self._of_findings = size

    def release(self, *, findings: bool) -> None:
        """Count what was read no longer, and also not the findings if they are not kept."""
        self._add(-self._read)
        self._read = 0
        if findings:
            self.keep_findings(0)

    def _add(self, size: int) -> None:
        with self._memory.lock:
            self._memory.used += size

    def _room(self) -> int:
        own = self._read + self._of_findings
        return max(ALWAYS - own, min(MOST_OF_ONE - own, MOST - self._memory.used))
