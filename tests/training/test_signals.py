"""Tests of the signals that end a run: a checkpoint within seconds, the exit code, and the command to resume."""

import contextlib
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from spo import environments
from spo.training import checkpoints, signals, trainer
from spo.training.evaluation import evaluate_in_parts
from spo.training.loop import train
from spo.training.signals import Listener, Terminated, interruptible, listen
from spo.training.sinks.base import Sink
from training.comparing import assert_same_run, last_state
from training.tiny_run import tiny_experiment


@pytest.fixture(autouse=True)
def default_handlers() -> Iterator[None]:
    """Handles signals as a program in a terminal. `nohup` and `&` start programs that ignore some of them."""
    defaults = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in defaults.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


@contextlib.contextmanager
def sent_after(seconds: float, number: int) -> Iterator[None]:
    timer = threading.Timer(seconds, send, [number])
    timer.start()
    yield
    timer.join()


# --- Handlers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_raises_an_exception_with_the_exit_code_of_a_shell(number: int, code: int):
    with pytest.raises(Terminated) as caught, listen():
        send(number)
    assert isinstance(caught.value, SystemExit)
    assert caught.value.code == code


def test_ctrl_c_raises_keyboard_interrupt():
    with pytest.raises(KeyboardInterrupt), listen():
        send(signal.SIGINT)


def test_handlers_are_restored():
    before = [signal.getsignal(number) for number in signals.SIGNALS]
    with listen():
        assert not {signal.getsignal(number) for number in signals.SIGNALS} & set(before)
    with pytest.raises(Terminated), listen():
        send(signal.SIGTERM)
    assert [signal.getsignal(number) for number in signals.SIGNALS] == before


def test_an_ignored_signal_stays_ignored():
    """As under nohup."""
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with listen() as listener:
            send(signal.SIGHUP)
            assert listener.number is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


def test_no_handlers_outside_of_the_main_thread_or_without_a_folder():
    before = signal.getsignal(signal.SIGTERM)
    seen: list[Any] = []

    def look(enabled: bool) -> None:
        with listen(enabled):
            seen.append(signal.getsignal(signal.SIGTERM))

    look(enabled=False)
    thread = threading.Thread(target=look, args=[True])
    thread.start()
    thread.join()
    assert seen == [before, before]


def test_later_signals_and_postponed_ones_raise_nothing():
    with listen() as listener, listener.postponed():
        send(signal.SIGTERM)
        send(signal.SIGINT)
    assert listener.number == signal.SIGTERM
    with listen(raises=False) as listener:
        send(signal.SIGINT)
    assert listener.number == signal.SIGINT


def test_a_second_signal_raises_again_only_after_a_while(monkeypatch: pytest.MonkeyPatch):
    """Soon after the first the run is ending already. Later, the first exception was caught somewhere."""
    listener, now = Listener(), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with pytest.raises(KeyboardInterrupt):
        listener.receive(signal.SIGINT)
    listener.receive(signal.SIGINT)
    now[0] += signals.SECONDS_BETWEEN + 1
    with listener.postponed():
        listener.receive(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        listener.receive(signal.SIGTERM)


# --- Calls that block -------------------------------------------------------------------------------------------------


def test_a_call_that_blocks_is_interrupted():
    """As a compiled program does, the call holds no instruction of Python at which a handler could run."""
    released, start = threading.Event(), time.monotonic()
    with pytest.raises(Terminated), listen(), sent_after(0.2, signal.SIGTERM):
        interruptible(released.wait, 20)
    assert time.monotonic() - start < 5
    released.set()


def test_results_and_errors_of_a_call_are_those_of_the_function():
    assert interruptible(sorted, [2, 1], reverse=True) == [2, 1]
    with pytest.raises(ZeroDivisionError):
        interruptible(divmod, 1, 0)


def test_a_call_in_the_background_returns_at_once():
    released = threading.Event()
    outcome = signals.in_background(released.wait, 20)
    assert not outcome.done()
    released.set()
    assert outcome.result()
    with pytest.raises(ZeroDivisionError):
        signals.in_background(divmod, 1, 0).result()


# --- Runs -------------------------------------------------------------------------------------------------------------


class At(Sink):
    """Calls a function at the `nth` record of a kind."""

    def __init__(self, kind: str, nth: int, function: Callable[[], None]):
        self._kind, self._left, self._function = kind, nth, function
        self.messages: list[str] = []

    def log(self, records: Sequence[dict[str, Any]]) -> None:
        self._left -= sum(record["kind"] == self._kind for record in records)
        if self._left == 0:
            self._left = -1
            self._function()

    def message(self, text: str) -> None:
        self.messages.append(text)


def test_sigterm_saves_the_latest_state_and_the_resumed_run_has_the_same_bits(whole_run: Path, tmp_path: Path):
    folder, sink = tmp_path / "run", At("train", 6, lambda: send(signal.SIGTERM))
    with pytest.raises(Terminated) as caught:
        train(tiny_experiment(), folder, sinks=[sink], checkpoint_seconds=1e9)
    assert caught.value.code == 143
    assert sink.messages[-1] == f"Ended by SIGTERM: continue with `spo train --resume {folder}`."
    assert last_state(folder).progress.iteration == 4
    train(tiny_experiment(), folder, resume=True)
    assert_same_run(whole_run, folder)


def test_more_signals_during_a_checkpoint_do_not_damage_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder, save, saved = tmp_path / "run", checkpoints.save, []

    def disturbed(*arguments: Any) -> Any:
        send(signal.SIGINT)
        send(signal.SIGTERM)
        saved.append(save(*arguments))
        send(signal.SIGINT)
        return saved[-1]

    monkeypatch.setattr(checkpoints, "save", disturbed)
    sink = At("train", 6, lambda: send(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        train(tiny_experiment(), folder, sinks=[sink], checkpoint_seconds=1e9)
    assert len(saved) == 1
    assert last_state(folder).progress.iteration == 4
    assert "Interrupted" in sink.messages[-1]
    # A signal during a checkpoint that was due: it is finished, and then the run ends.
    with pytest.raises(KeyboardInterrupt):
        train(tiny_experiment(), folder, resume=True, checkpoint_seconds=0.0)
    assert last_state(folder).progress.iteration == 6


def test_ctrl_c_during_a_long_evaluation_ends_within_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    released, finish, start = threading.Event(), trainer._finish, []

    def slow(program: Any, *arguments: Any) -> Any:
        if start:
            released.wait(30)
        return finish(program, *arguments)

    def begin() -> None:
        start.append(time.monotonic())
        threading.Timer(0.2, send, [signal.SIGINT]).start()

    monkeypatch.setattr(trainer, "_finish", slow)
    with pytest.raises(KeyboardInterrupt):
        train(tiny_experiment(), tmp_path / "run", sinks=[At("train", 4, begin)], checkpoint_seconds=1e9)
    assert time.monotonic() - start[0] < 10
    released.set()
    assert last_state(tmp_path / "run").progress.iteration == 2


def test_ctrl_c_during_a_step_of_many_episodes_ends_the_evaluation_of_a_saved_run():
    begun, released, ended = threading.Event(), threading.Event(), []

    def wait(action: np.ndarray) -> np.ndarray:
        begun.set()
        ended.append(released.wait(20))
        return action

    def act(learner: Any, key: Any, state: Any, timestep: Any, **options: bool) -> Any:
        actions = jnp.zeros(timestep.reward.shape, jnp.int32)
        return jax.pure_callback(wait, actions, actions, vmap_method="broadcast_all")

    algorithm = SimpleNamespace(act=act)
    stub = SimpleNamespace(
        task=environments.make("tiny/bandit"), algorithm=algorithm, experiment=SimpleNamespace(num_seeds=1)
    )
    threading.Thread(target=lambda: (begun.wait(), send(signal.SIGINT))).start()
    with pytest.raises(KeyboardInterrupt):
        evaluate_in_parts(stub, {}, jax.random.key(0), 2, use_search=False, greedy=False, on_progress=lambda *_: None)
    assert not ended
    released.set()


@pytest.mark.program
def test_a_terminated_program_exits_with_143_and_names_the_command_to_resume(tmp_path: Path):
    """The signal arrives while the final evaluation is compiled or runs, which takes minutes."""
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "spo", "train", *LONG_EVALUATION, "--run", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: has_train_record(folder), process)
    time.sleep(5)  # the final evaluation
    start = time.monotonic()
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert time.monotonic() - start < 15, "it ended with the evaluation"
    assert process.returncode == 143, err
    assert f"Ended by SIGTERM: continue with `spo train --resume {folder}`." in out
    assert "Traceback" not in err
    assert checkpoints.iterations(folder / "checkpoints")


@pytest.mark.program
def test_a_closed_terminal_ends_a_run_with_a_checkpoint(tmp_path: Path):
    folder = tmp_path / "run"
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "spo", "train", *LONG_EVALUATION, "--run", str(folder)]
    process = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True)
    os.close(terminal)
    os.set_blocking(controller, False)
    wait_until(lambda: read(controller) == b"" and has_train_record(folder), process)
    os.close(controller)  # from here on, writing to the terminal is an error
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) == 129
    assert checkpoints.iterations(folder / "checkpoints")


#: A run with one interval and an evaluation that takes minutes.
LONG_EVALUATION = [
    *("--task", "tiny/chain", "--steps", "128", "--num-envs", "8", "--rollout-length", "4", "--network.width", "8"),
    *("--search.num-particles", "4", "--search.horizon", "2", "--search.unroll", "1", "--batch-size", "4"),
    *("--sequence-length", "2", "--num-updates", "1", "--replay-size", "128", "--logs-per-evaluation", "1"),
    *("--evaluation.num-evaluations", "1", "--evaluation.episodes", "4", "--evaluation.final-episodes", "4000000"),
]


def read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except BlockingIOError:  # there is nothing to read
        return b""


def has_train_record(folder: Path) -> bool:
    path = folder / "metrics.jsonl"
    return path.exists() and b'"train"' in path.read_bytes()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen) -> None:
    while not condition():
        assert process.poll() is None, "the run ended before its signal"
        time.sleep(0.05)
