"""Signals that end a run: Ctrl-C (SIGINT), SIGTERM and SIGHUP; and calls that a signal can interrupt.

Python runs the handler of a signal in the main thread, between two of its instructions. A compiled program blocks the
main thread for seconds or minutes. `interruptible` therefore runs it in another thread while the main thread waits.
"""

import atexit
import contextlib
import errno
import math
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from types import FrameType
from typing import NoReturn, ParamSpec, TypeVar

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
#: Least time between two exceptions: the first must reach the function that saves the run.
SECONDS_BETWEEN = 2.0

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Terminated(SystemExit):
    """The process received SIGTERM or SIGHUP. The exit code is that of a shell, 128 + the number of the signal."""

    def __init__(self, number: int):
        super().__init__(128 + number)
        self.number = number


class Listener:
    """Receives the signals that end a run.

    The first one raises KeyboardInterrupt or `Terminated`, unless `may_stop` is False: then its number is kept for the
    caller. Those soon after it do nothing: the run is ending already. A later one raises the exception again, in case
    the first was caught somewhere.
    """

    def __init__(self, raises: bool = True):
        self.number: int | None = None  # of the first signal
        self.may_stop = raises  # of several processes: only once all agree on the last state
        self._num_postponed = 0
        self._raised_at = -math.inf

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        """Handles a signal."""
        del frame
        if self.number is None:
            self.number = number
        if number == signal.SIGHUP:
            _replace_lost_terminal()
        may_raise = self.may_stop and not self._num_postponed
        if may_raise and time.monotonic() - self._raised_at > SECONDS_BETWEEN:
            self.stop()

    def stop(self) -> NoReturn:
        """Raises the exception of the first signal."""
        self._raised_at = time.monotonic()
        raise stop_error(self.number or signal.SIGTERM)

    @contextlib.contextmanager
    def postponed(self) -> Iterator[None]:
        """Postpones signals: the caller looks at `number` later."""
        self._num_postponed += 1
        try:
            yield
        finally:
            self._num_postponed -= 1


@contextlib.contextmanager
def listen(enabled: bool = True, *, raises: bool = True) -> Iterator[Listener]:
    """Handles the signals that end a run, and restores the former handlers. Only the main thread can do so.

    A signal that is ignored stays ignored: SIGHUP under `nohup`, SIGINT in a job in the background.
    """
    listener, former = Listener(raises), {}
    if enabled and threading.current_thread() is threading.main_thread():
        former = {number: signal.getsignal(number) for number in SIGNALS}
        former = {number: handler for number, handler in former.items() if handler != signal.SIG_IGN}
    try:
        for number in former:
            signal.signal(number, listener.receive)
        yield listener
    finally:
        for number, handler in former.items():
            # None: the handler was installed by another language and can't be restored from here.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def stop_error(number: int) -> BaseException:
    """Returns the exception that a signal raises."""
    return KeyboardInterrupt() if number == signal.SIGINT else Terminated(number)


def describe(error: BaseException) -> str:
    """Returns the reason of an exception of `stop_error`, in words."""
    return f"Ended by {signal.Signals(error.number).name}" if isinstance(error, Terminated) else "Interrupted"


def interruptible(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> Result:
    """Calls a function such that the handler of a signal can raise an exception meanwhile.

    The function itself can't be stopped. It continues in its thread, and its result is not used.
    """
    if threading.current_thread() is not threading.main_thread():
        return function(*arguments, **options)
    outcome, thread = _start(function, *arguments, **options)
    try:
        # A signal that another thread has received does not wake this one: it looks for itself from time to time.
        while not wait([outcome], timeout=1.0).done:
            pass
        return outcome.result()
    except (KeyboardInterrupt, Terminated) as error:
        number = error.number if isinstance(error, Terminated) else signal.SIGINT
        atexit.register(_exit_while_running, [thread, *_background], 128 + number)
        raise


#: Threads of `in_background`.
_background: list[threading.Thread] = []


def in_background(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> Future[Result]:
    """Starts a call in another thread. The process ends after it, unless a signal ends an interruptible call."""
    outcome, thread = _start(function, *arguments, **options)
    _background.append(thread)
    atexit.register(thread.join)
    return outcome


def _start(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
) -> tuple[Future[Result], threading.Thread]:
    outcome: Future[Result] = Future()

    def work() -> None:
        try:
            outcome.set_result(function(*arguments, **options))
        except BaseException as error:
            outcome.set_exception(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return outcome, thread


def _exit_while_running(threads: Sequence[threading.Thread], code: int) -> None:
    """Ends the process at once if a thread still runs: a C++ library aborts if Python ends before its threads."""
    if any(thread.is_alive() for thread in threads):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _replace_lost_terminal() -> None:
    """Sends the output to nowhere if its terminal was closed: each line would raise an error."""
    for descriptor in (1, 2):
        try:
            termios.tcgetattr(descriptor)
        except termios.error as error:
            if error.args[0] == errno.EIO:
                with open(os.devnull, "wb") as nowhere:
                    os.dup2(nowhere.fileno(), descriptor)
