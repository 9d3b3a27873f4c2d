"""Agreement of several processes on the state at which a run ends, while their programs still run.

At the end of every interval, the processes compare their signals and stop together (`spo.training.loop`). An interval
can take minutes, and a scheduler does not wait so long. Each process therefore has a thread that watches meanwhile:

1.  A process has received a signal, and its interval does not end within `PATIENCE_SECONDS`. It publishes the signal.
2.  Each process that finds a published signal publishes the iteration of its latest complete state, once.
3.  When all have done so, the largest of these iterations is the target: all stop at its state.
4.  A process that has this state gives up the running program. One that hasn't is about to complete it, because
    programs of all processes wait for each other. It stops when it has saved the state.

A process may complete a state between steps 2 and 3, after it has published an earlier one. It waits for the target
first, and drops the new state if the target is before it.

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
        self._closed = threading.Event()
        # The main thread and the watching one use what follows, and hold `_changed` meanwhile.
        self._changed = threading.Condition()
        self._iteration = iteration  # of the latest complete state, or of the one that is being saved
        self._is_saving = False  # inside of `completing`
        self._published = False  # an iteration of this process (step 2)
        self._target: int | None = None  # iteration at which all stop (step 3); None while not `_published`
        if jax.process_count() > 1:
            threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def completing(self, iteration: int) -> Iterator[None]:
        """Context in which a complete state is saved.

        On entry it raises if all processes stop at an earlier state, on exit if all stop at this one.
        """
        with self._changed:
            if self._published:
                self._changed.wait_for(lambda: self._target is not None, DECISION_SECONDS)
                if self._target is None or self._target < iteration:
                    self._allow_stop()
                    self.listener.stop()
            self._iteration, self._is_saving = iteration, True
        try:
            yield
        finally:
            with self._changed:
                self._is_saving, is_decided = False, self._target is not None
        if is_decided:  # after the processes have compared their signals
            self._allow_stop()
            self.listener.stop()

    def close(self) -> None:
        """Ends the watch."""
        self._closed.set()

    def _allow_stop(self) -> None:
        """Lets the exception of a signal end this process, and the end of the run exchange numbers."""
        processes.restart_exchanges()
        self.listener.may_stop = True

    def _watch(self) -> None:
        """Runs steps 1 to 4 in a thread of its own."""
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
        """Runs steps 2 to 4 as far as the published numbers allow. Returns True after the last one."""
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
            if self._is_saving or self._iteration < self._target:
                return True  # `completing` stops this process
            self._allow_stop()
        signal.pthread_kill(threading.main_thread().ident or 0, self.listener.number)
        return True
