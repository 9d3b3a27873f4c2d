"""An episode that is played by hand: the requests of the live page as methods, without a server.

`answer(path, request)` takes every request of `spo.inspection.protocol`, and raises ValueError for a wrong one.
"""

import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from spo.checks import Seed, check_value, shorten
from spo.inspection.episode import Origin, describe_state, describe_subject
from spo.inspection.pictures import Budget, Pictures
from spo.inspection.records import describe_decision, plain
from spo.inspection.settings import check_settings
from spo.inspection.subject import Subject
from spo.search import SearchOutput
from spo.types import ContinuousActions, DiscreteActions, State, TimeStep

#: Most steps of an episode, which bounds the memory.
MAX_STEPS = 2000
#: Searches whose states are kept for `/api/picture`.
KEPT_SEARCHES = 4
#: Pictures of simulated states that are not sketches are drawn on request only.
NO_BUDGET = Budget(seconds=0.0, characters=0)


class Moment(NamedTuple):
    """One state of the episode."""

    state: State
    timestep: TimeStep
    total: float  # sum of rewards so far
    reward: float | None = None  # of the action taken here
    taken: Any = None  # that action


class _Simulated(NamedTuple):
    """The states of one search."""

    states: Any  # leaves are [*shape, ...]
    shape: tuple[int, ...]  # [depths, particles] or [nodes]


class Session:
    """The current episode of the live page."""

    def __init__(self, subject: Subject, origin: Origin, seed: int = 0):
        """Starts an episode."""
        self.subject = subject
        self.origin = origin
        self.seed = seed
        self.moments = [Moment(*subject.reset(seed), 0.0)]
        self._states: collections.OrderedDict[int, _Simulated] = collections.OrderedDict()
        self._num_searches = 0
        self._drawn: dict[int, tuple[State, dict[str, Any], dict[str, Any]]] = {}  # by step

    def answer(self, path: str, request: Any) -> dict[str, Any]:
        """Returns the answer to a request. Raises ValueError with a sentence if the request is wrong."""
        requests: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "/api/session": self._open,
            "/api/search": self._search,
            "/api/step": self._step,
            "/api/undo": self._undo,
            "/api/reset": self._reset,
            "/api/picture": self._picture,
        }
        if path not in requests:
            raise ValueError(f"There is no request {shorten(path)}: choose from {', '.join(requests)}.")
        if not isinstance(request, Mapping):
            raise ValueError(f"A request must be an object with names and values, got {shorten(request)}.")
        return requests[path](request)

    @property
    def starts(self) -> dict[str, Any] | None:
        """Kind and range of the starts that can be chosen."""
        starts = self.subject.environment.starts
        return (
            None
            if starts is None
            else {
                "label": starts.label,
                "low": int(starts.low),
                "high": int(starts.high),
            }
        )

    # --- Requests -----------------------------------------------------------------------------------------------------
    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _check_names(request)
        pictures = self._new_pictures()
        steps = [self._describe(index, pictures) for index in range(len(self.moments))]
        steps[-1]["decision"] = self._decide(len(steps) - 1, self.seed, {}, pictures)
        return {
            **describe_subject(self.subject, self.origin),
            "seed": self.seed,
            "steps": steps,
            "pictures": pictures.by_name,
            "live": {"starts": self.starts},
        }

    def _search(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _check_names(request, "index", "settings", "seed")
        return self._changed([self._check_index(request)], request)

    def _step(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _check_names(request, "index", "action", "settings", "seed")
        index = self._check_index(request)
        moment = self.moments[index]
        action = self._check_action(request.get("action"), moment.timestep.action_mask)
        if bool(moment.timestep.ended):
            raise ValueError("The episode has ended: take a step back, or start a new episode.")
        if index + 1 >= MAX_STEPS:
            raise ValueError(f"An episode has at most {MAX_STEPS} steps here: start a new one.")
        self._check_decision(request)
        state, timestep = self.subject.step(self.seed, index, moment.state, action)
        reward = float(timestep.reward)
        moments = [*self.moments[:index], moment._replace(reward=reward, taken=action)]
        self.moments = [*moments, Moment(state, timestep, moment.total + reward)]
        return self._changed([index, index + 1], request)

    def _undo(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _check_names(request)
        if len(self.moments) == 1:
            raise ValueError("This is the start of the episode: there is no step to take back.")
        self.moments = [*self.moments[:-2], self.moments[-2]._replace(reward=None, taken=None)]
        return self._changed([len(self.moments) - 1], {})

    def _reset(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _check_names(request, "seed", "start", "settings")
        seed, start = request.get("seed", 0), request.get("start")
        check_value("seed", seed, Seed)
        self._check_decision({**request, "seed": seed})
        first = self.subject.reset(seed) if start is None else self.subject.reset_to(seed, self._check_start(start))
        self.seed, self.moments = seed, [Moment(*first, 0.0)]
        return self._changed([0], {**request, "seed": seed})

    def _picture(self, request: Mapping[str, Any]) -> dict[str, Any]:
        _check_names(request, "search_id", "place")
        states = self._states.get(_hashable(request.get("search_id")))
        if states is None:
            raise ValueError("The states of this search are not kept any more: search again.")
        place = _check_place(request.get("place"), states.shape)
        pictures = self._new_pictures()
        name = pictures.add(jax.tree.map(lambda x: x[place], states.states))
        return {"picture": None if name is None else pictures.by_name[name]}

    # --- Answers ------------------------------------------------------------------------------------------------------
    def _changed(self, indices: list[int], request: Mapping[str, Any]) -> dict[str, Any]:
        """Describes the steps that changed, with a new decision in the last of them."""
        pictures = self._new_pictures()
        steps = [self._describe(index, pictures) for index in indices]
        settings, seed = request.get("settings", {}), request.get("seed", self.seed)
        check_value("seed", seed, Seed)
        steps[-1]["decision"] = self._decide(indices[-1], seed, settings, pictures)
        return {"length": len(self.moments), "steps": steps, "pictures": pictures.by_name}

    def _describe(self, index: int, pictures: Pictures) -> dict[str, Any]:
        moment = self.moments[index]
        # Drawing a state may take longer than a search: it is drawn once, however often it is searched.
        if self._drawn.get(index, (None,))[0] is not moment.state:
            own = self._new_pictures()
            step = describe_state(own, index, moment.state, moment.timestep, moment.total)
            self._drawn[index] = (moment.state, step, own.by_name)
        _, step, drawn = self._drawn[index]
        pictures.by_name |= drawn
        return {**step, "taken": plain(moment.taken), "reward": plain(moment.reward)}

    def _decide(self, index: int, seed: int, given: Any, pictures: Pictures) -> dict[str, Any] | None:
        """Returns the decision in a state; None at the end of the episode."""
        moment, settings = self.moments[index], check_settings(self.subject.experiment, given)
        if bool(moment.timestep.ended):
            return None
        decided, timing = self.subject.decide(seed, index, moment.state, moment.timestep, settings)
        decision = describe_decision(
            decided, timing, settings, seed, self.subject.environment.action_spec, pictures.add_simulated
        )
        return {**decision, "search_id": self._keep(decided.search)}

    def _keep(self, search: Any) -> int | None:
        """Keeps the states of a search, and drops the oldest ones."""
        if search is None:
            return None
        self._num_searches += 1
        if isinstance(search, SearchOutput):
            assert search.ancestry is not None  # always recorded here
            kept = _Simulated(search.ancestry.state, search.ancestry.parent.shape)
        else:
            kept = _Simulated(search.tree.embeddings.state, search.tree.node_visits.shape)
        self._states[self._num_searches] = kept
        if len(self._states) > KEPT_SEARCHES:
            self._states.popitem(last=False)
        return self._num_searches

    def _new_pictures(self) -> Pictures:
        return Pictures(self.subject.environment, NO_BUDGET)

    # --- Checks -------------------------------------------------------------------------------------------------------
    def _check_index(self, request: Mapping[str, Any]) -> int:
        index = request.get("index", len(self.moments) - 1)
        if type(index) is not int or not 0 <= index < len(self.moments):
            raise ValueError(f"index must be a step from 0 to {len(self.moments) - 1}, got {shorten(index)}.")
        return index

    def _check_decision(self, request: Mapping[str, Any]) -> None:
        """Raises before anything changes."""
        check_settings(self.subject.experiment, request.get("settings", {}))
        check_value("seed", request.get("seed", self.seed), Seed)

    def _check_action(self, action: Any, mask: Any) -> Any:
        spec = self.subject.environment.action_spec
        if isinstance(spec, DiscreteActions):
            if type(action) is not int or not 0 <= action < spec.num_actions:
                raise ValueError(f"action must be 0 to {spec.num_actions - 1}, got {shorten(action)}.")
            if mask is not None and not bool(mask[action]):
                raise ValueError(f"action {action} is not allowed in this state: choose another one.")
            return action
        return _check_vector(action, spec)

    def _check_start(self, start: Any) -> int:
        starts = self.subject.environment.starts
        if starts is None:
            raise ValueError("This environment has no starts to choose from: leave out start.")
        if type(start) is not int or not starts.low <= start <= starts.high:
            raise ValueError(f"start must be {starts.low} to {starts.high}, got {shorten(start)}.")
        return start


def _check_vector(action: Any, spec: ContinuousActions) -> Any:
    numbers = isinstance(action, list) and all(type(entry) in (int, float) for entry in action)
    if (
        not numbers
        or len(action) != spec.size
        # In float32, as the search returns them: a bound may be rounded away from zero.
        or not all(
            np.float32(low) <= np.float32(entry) <= np.float32(high)
            for entry, (low, high) in zip(action, spec.bounds, strict=True)
        )
    ):
        low, high = (_in_words(bound) for bound in (spec.low, spec.high))
        raise ValueError(f"action must be {spec.size} numbers between {low} and {high}, got {shorten(action)}.")
    return np.asarray(action, np.float32)


def _in_words(bound: float | tuple[float, ...]) -> str:
    return f"({', '.join(f'{number:g}' for number in bound)})" if isinstance(bound, tuple) else f"{bound:g}"


def _check_place(place: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    numbers = isinstance(place, list) and all(type(entry) is int for entry in place)
    if not numbers or len(place) != len(shape) or not all(0 <= e < size for e, size in zip(place, shape, strict=True)):
        raise ValueError(f"place must be [depth, particle] or [node] of the search, got {shorten(place)}.")
    return tuple(place)


def _check_names(request: Mapping[str, Any], *known: str) -> None:
    unknown = [name for name in request if name not in known]
    if unknown:
        names = f"has only {', '.join(known)}" if known else "has no fields"
        raise ValueError(f"There is no field {shorten(unknown[0])}: this request {names}.")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int) else None


__all__ = ["Session"]
