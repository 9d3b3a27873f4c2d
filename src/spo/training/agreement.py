"""Agreement of several processes on the state at which a run ends, while their programs still run.

After an interval, the processes agree by themselves: see `spo.training.loop`. An interval can take minutes, and a
scheduler does not wait so long. If none ends in time, each process publishes the iteration of its latest complete
state. The largest of them is the iteration at which all stop. A process that has this state gives up the running
program. One that hasn't is about to reach it, because programs of all processes wait for each other.

Messages are sent through the service that connects the processes, not through the devices, which are busy.
"""

import contextlib
import itertools
import signal
import threading
import time
from collections.abc import Iterator

import jax

from spo.training import processes
from spo.training.signals import Listener

#: Seconds after a signal for which the end of the current interval is awaited.
PATIENCE_SECONDS = 5.0
#: Seconds after which a process stops waiting for the others to publish their iterations.
DECISION_SECONDS = 60.0

_numbers = itertools.count()  # of the agreements of this process; all processes make the same ones


class Agreement:
    """Stops all processes of a run at the same state. It does nothing in a single process."""

    def __init__(self, listener: Listener, iteration: int):
        """Starts to watch for signals.

        Args:
          listener: the receiver of this process's signals.
          iteration: of the latest complete state; -1 if there is none.
        """
        self.listener = listener
        self._folder = f"spo/stop/{next(_numbers)}/"
        self._changed = threading.Condition()
        self._iteration = iteration  # of the latest complete state, or of the one that is being passed on
        self._updating = False
        self._published = False
        self._target: int | None = None  # the iteration at which all stop
        self._closed = threading.Event()
        if jax.process_count() > 1:
            threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def passing_on(self, iteration: int) -> Iterator[None]:
        """Surrounds what is done with a complete state.

        Raises before it if all stop at the state before this one, and after it if all stop at this one.
        """
        with self._changed:
            if self._published:
                self._changed.wait_for(lambda: self._target is not None, DECISION_SECONDS)
                if self._target is None or self._target < iteration:
                    self._give_up()
                    self.listener.stop()
            self._iteration, self._updating = iteration, True
        try:
            yield
        finally:
            with self._changed:
                self._updating, decided = False, self._target is not None
        if decided:  # after the processes have compared their signals
            self._give_up()
            self.listener.stop()

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()

    def _give_up(self) -> None:
        processes.give_up_programs()
        self.listener.agreed = True

    def _watch(self) -> None:
        received_at = None
        while not self._closed.wait(0.25):
            number = self.listener.number
            if number is not None and received_at is None:
                received_at = time.monotonic()
            try:
                if number is not None and time.monotonic() - (received_at or 0) > PATIENCE_SECONDS:
                    processes.publish(self._folder + "signal", number)
                found = processes.published(self._folder)
                if "signal" in found and self._decide(found):
                    return
            except RuntimeError:
                return  # the processes have lost each other, which JAX reports

    def _decide(self, found: dict[str, int]) -> bool:
        """Publishes the iteration of this process. Returns True when all have done so, and stops the main thread."""
        iterations = [value for name, value in found.items() if name != "signal"]
        with self._changed:
            if not self._published:
                self._published = True
                processes.publish(f"{self._folder}{jax.process_index()}", self._iteration)
            if len(iterations) < jax.process_count():
                return False
            self._target = max(iterations)
            self._changed.notify_all()
            if self.listener.number is None:
                self.listener.number = found["signal"]
            if self._updating or self._iteration < self._target:
                return True  # this process ends at the end of the interval, with the others
            self._give_up()
        signal.pthread_kill(threading.main_thread().ident or 0, self.listener.number)
        return True
