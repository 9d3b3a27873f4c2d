"""Tests of the agreement of two processes on the state at which they stop. The second process is a dictionary."""

import signal
import threading
from collections.abc import Iterator

import jax
import pytest

from spo.training import agreement, processes
from spo.training.agreement import Agreement
from spo.training.signals import Listener, Terminated, listen

FOLDER = "spo/stop/7/"


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """The numbers that the processes have published."""
    found: dict[str, int] = {}
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(agreement, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(agreement, "_numbers", iter([7]))
    monkeypatch.setattr(processes, "publish", found.__setitem__)
    monkeypatch.setattr(
        processes, "published", lambda folder: {name.removeprefix(folder): number for name, number in found.items()}
    )
    monkeypatch.setattr(processes, "_exchanges", {"folder": "spo/run", "count": 5})
    return found


def test_a_process_at_the_common_state_gives_up_its_program(numbers: dict[str, int]):
    numbers |= {FOLDER + "signal": signal.SIGTERM, FOLDER + "1": 4}  # the other process has received it
    with listen(raises=False) as listener:
        Agreement(listener, iteration=4)
        with pytest.raises(Terminated):
            threading.Event().wait(20)  # a program that takes long
    assert numbers[FOLDER + "0"] == 4
    assert listener.may_stop
    assert processes._exchanges == {"folder": "spo/end", "count": 0}


def test_a_process_announces_its_own_signal_and_waits_for_the_others(numbers: dict[str, int]):
    with listen(raises=False) as listener:
        watched = Agreement(listener, iteration=4)
        signal.raise_signal(signal.SIGTERM)
        with watched._changed:
            watched._changed.wait(1.0)
        assert numbers == {FOLDER + "signal": signal.SIGTERM, FOLDER + "0": 4}
        assert not listener.may_stop
        numbers[FOLDER + "1"] = 4
        with pytest.raises(Terminated):
            threading.Event().wait(20)


def test_a_process_behind_the_others_finishes_its_interval(numbers: dict[str, int]):
    numbers |= {FOLDER + "signal": signal.SIGTERM, FOLDER + "1": 6}
    with listen(raises=False) as listener:
        watched = Agreement(listener, iteration=4)
        with watched._changed:
            assert watched._changed.wait_for(lambda: watched._target == 6, 20)
        with pytest.raises(Terminated), watched.completing(6):
            assert not listener.may_stop  # the state is saved first
    assert numbers[FOLDER + "0"] == 4
    assert listener.may_stop


def test_a_process_that_has_just_finished_an_interval_drops_it_if_the_others_stop_before(numbers: dict[str, int]):
    listener = Listener(raises=False)
    watched = Agreement(listener, iteration=4)
    watched.close()
    watched._published, watched._target = True, 4
    with pytest.raises(Terminated), watched.completing(6):
        pytest.fail("the state of iteration 6 must not be saved")
    assert listener.may_stop


def test_a_process_that_saves_a_state_publishes_that_one(numbers: dict[str, int]):
    with listen(raises=False) as listener:
        watched = Agreement(listener, iteration=4)

        def decide() -> None:
            numbers.update({FOLDER + "signal": signal.SIGTERM, FOLDER + "1": 4})
            with watched._changed:
                assert watched._changed.wait_for(lambda: watched._target == 6, 20)

        with pytest.raises(Terminated), watched.completing(6):
            decide()
    assert numbers[FOLDER + "0"] == 6
    assert listener.may_stop
