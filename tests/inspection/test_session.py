"""Tests of the recorded episode, and of the requests of the live page. They share one compiled search."""

import json
import math
from typing import Any

import jax
import numpy as np
import pytest

from inspection.subjects import make_subject
from spo.environments import make
from spo.inspection.episode import Origin, describe_actions, record_episode
from spo.inspection.session import Session, _check_vector
from spo.types import ContinuousActions, DiscreteActions

ORIGIN = Origin("runs/x", "best", 100)
SMALL = {"num_particles": 8, "horizon": 4, "resample_period": 1, "readout": "last"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    subject = make_subject()
    settings = subject.own_settings | SMALL
    return record_episode(subject, ORIGIN, seed=0, settings=settings, max_steps=2)


@pytest.fixture
def session() -> Session:
    return Session(make_subject(), ORIGIN)


def test_an_episode_is_json_of_a_bounded_size(document: dict[str, Any]):
    text = json.dumps(document, allow_nan=False)
    assert len(text) < 40_000
    assert [step["index"] for step in document["steps"]] == [0, 1, 2]
    last = document["steps"][-1]
    assert last["decision"] is None
    assert [step["taken"] for step in document["steps"][:-1]] == [
        step["decision"]["action"] for step in document["steps"][:-1]
    ]
    assert document["method"] == {"num_root_candidates": None, "ess_threshold": None, "weighting": "advantage"}
    rewards = [step["reward"] for step in document["steps"][:-1]]
    assert math.isclose(sum(rewards), last["return"], abs_tol=1e-3)


def test_a_search_is_a_genealogy(document: dict[str, Any]):
    search = document["steps"][0]["decision"]["search"]
    parent, weight = np.asarray(search["parent"]), np.asarray(search["weight"])
    assert parent.shape == weight.shape == (4, 8)
    assert ((parent >= 0) & (parent < 8)).all()
    np.testing.assert_allclose(weight.sum(axis=1), 1.0, atol=2e-3)
    np.testing.assert_allclose(1 / np.sum(weight**2, axis=1), search["ess"], rtol=2e-2)
    assert search["resampled"] == [True, True, True, False]
    # The first actions of the particles of the read-out, weighted, are the policy after the search.
    first = np.asarray(search["survivor"])
    last_weights = weight[-1][first]
    for depth in (3, 2, 1):
        first = parent[depth][first]
    policy = document["steps"][0]["decision"]["policy"]
    actions = np.asarray(search["action"])[0][first]
    np.testing.assert_allclose(np.bincount(actions, last_weights, minlength=18), policy["after"], atol=2e-3)
    assert math.isclose(sum(policy["before"]), 1.0, abs_tol=2e-3)


def test_pictures_of_simulated_states_follow_from_the_moves(document: dict[str, Any]):
    from spo.environments.rubiks_cube import move_table

    decision, pictures = document["steps"][0]["decision"], document["pictures"]
    root = np.array(list(pictures[document["steps"][0]["picture"]]["cells"]))
    table = move_table(3)
    search = decision["search"]
    for action, name in zip(search["action"][0], search["picture"][0], strict=True):
        assert "".join(root[table[action]]) == pictures[name]["cells"]
    chosen = "".join(root[table[decision["action"]]])
    assert chosen == pictures[document["steps"][1]["picture"]]["cells"]


def test_the_live_search_is_that_of_the_file(document: dict[str, Any], session: Session):
    recorded = document["steps"][0]["decision"]
    answer = session.answer("/api/search", {"index": 0, "settings": SMALL, "seed": 0})
    live = answer["steps"][0]["decision"]
    for name in ("action", "value", "policy", "search", "settings", "temperature"):
        assert live[name] == recorded[name], name
    assert live["compile_seconds"] < live["seconds"] + 1.0, "the program is shared"
    other = session.answer("/api/search", {"index": 0, "settings": SMALL, "seed": 1})["steps"][0]["decision"]
    assert other["search"]["action"] != recorded["search"]["action"]
    hot = session.answer("/api/search", {"settings": SMALL | {"temperature": 1e5}})["steps"][0]["decision"]
    assert hot["temperature"] == pytest.approx(1e5)
    assert np.ptp(hot["search"]["weight"]) < 1e-3, "at a high temperature all particles weigh the same"


@pytest.mark.parametrize("task", ["tiny/chain", "tiny/lqr"])
def test_a_tree_of_mctx_is_shown_as_ours(task: str):
    searches = []
    for library in ("spo", "mctx"):
        subject = make_subject("sampled_alphazero", task, tree_library=library)
        with jax.numpy_rank_promotion("allow"):  # mctx promotes ranks
            document = record_episode(subject, ORIGIN, seed=0, settings=subject.own_settings, max_steps=1)
        searches.append(document["steps"][0]["decision"]["search"])
    ours, theirs = searches
    assert ours.keys() == theirs.keys()
    assert ours["parent"] == theirs["parent"]
    assert ours["visits"] == theirs["visits"]


def test_a_step_by_hand_can_be_taken_back(session: Session):
    before = session.answer("/api/session", {})
    assert before["live"]["starts"] == {"label": "Scrambles", "low": 0, "high": 30}
    stepped = session.answer("/api/step", {"index": 0, "action": 4, "settings": SMALL})
    assert stepped["length"] == 2
    assert stepped["steps"][0]["taken"] == 4, "also where the search would have chosen another action"
    assert [step["index"] for step in stepped["steps"]] == [0, 1]
    assert stepped["steps"][1]["picture"] != before["steps"][0]["picture"]
    undone = session.answer("/api/undo", {})
    assert undone["length"] == 1
    assert undone["steps"][0]["picture"] == before["steps"][0]["picture"]
    assert undone["steps"][0]["reward"] is undone["steps"][0]["taken"] is None
    solved = session.answer("/api/reset", {"seed": 3, "start": 0, "settings": SMALL})
    cells = solved["pictures"][solved["steps"][0]["picture"]]["cells"]
    assert cells == "".join(colour * 9 for colour in "012345"), "no scrambles"


def test_a_picture_of_a_particle_on_request(session: Session):
    answer = session.answer("/api/search", {"settings": SMALL})
    decision = answer["steps"][0]["decision"]
    drawn = session.answer("/api/picture", {"search_id": decision["search_id"], "place": [1, 2]})["picture"]
    assert drawn == answer["pictures"][decision["search"]["picture"][1][2]]


def test_numbers_of_numpy_in_a_spec_are_written():
    environment = make("tiny/lqr").train
    spec = ContinuousActions(np.int64(1), np.float32(-1.0), np.float32(1.0))
    described = describe_actions(environment._replace(action_spec=spec))
    assert json.loads(json.dumps(described)) == {"kind": "continuous", "size": 1, "low": -1.0, "high": 1.0}
    spec = ContinuousActions(2, np.float32(-1.0), np.float32([1.0, 0.5]))
    described = describe_actions(environment._replace(action_spec=spec))
    assert json.loads(json.dumps(described)) == {"kind": "continuous", "size": 2, "low": -1.0, "high": [1.0, 0.5]}
    named = describe_actions(environment._replace(action_spec=DiscreteActions(np.int64(2)), action_names=()))
    assert named["names"] == ["action 0", "action 1"]


def test_an_action_by_hand_keeps_the_bounds_of_each_dimension():
    spec = ContinuousActions(2, -1.0, 1.0)._replace(high=[1.0, 0.5])
    assert spec == ContinuousActions(2, -1.0, (1.0, 0.5))
    np.testing.assert_array_equal(_check_vector([1.0, 0.5], spec), np.float32([1.0, 0.5]))
    with pytest.raises(ValueError, match=r"action must be 2 numbers between -1 and \(1, 0.5\), got \[0.5, 1.0\]"):
        _check_vector([0.5, 1.0], spec)


def test_an_action_that_is_not_allowed_is_refused():
    session = Session(make_subject(task="tiny/masked"), ORIGIN)
    mask = np.asarray(session.moments[0].timestep.action_mask)
    refused = int(np.flatnonzero(~mask)[0])
    with pytest.raises(ValueError, match=f"action {refused} is not allowed in this state"):
        session.answer("/api/step", {"index": 0, "action": refused})
    assert len(session.moments) == 1


def test_the_temperature_needs_no_compilation_and_other_settings_do(session: Session):
    def decision(**settings: Any) -> Any:
        return session.answer("/api/search", {"settings": SMALL | settings})["steps"][0]["decision"]

    decision()
    for settings in ({}, {"temperature": 0.5}, {"temperature": 7.0}):
        assert decision(**settings)["compile_seconds"] < 1e-3
    assert decision(horizon=1)["compile_seconds"] > 1e-3
    assert decision(horizon=1)["compile_seconds"] < 1e-3


@pytest.mark.parametrize(
    ("path", "request_", "words"),
    [
        ("/api/nothing", {}, "There is no request"),
        ("/api/search", [], "must be an object"),
        ("/api/search", {"index": -1}, "index must be a step"),
        ("/api/search", {"index": True}, "index must be a step"),
        ("/api/search", {"seed": -1}, "seed must lie between"),
        ("/api/search", {"seed": "0"}, "seed must be"),
        ("/api/search", {"path": "/etc/passwd"}, "There is no field"),
        ("/api/step", {"action": 18}, "action must be 0 to 17"),
        ("/api/step", {"action": [1]}, "action must be 0 to 17"),
        ("/api/step", {"action": 1, "settings": {"horizon": 3}}, "horizon must be one of"),
        ("/api/undo", {}, "no step to take back"),
        ("/api/reset", {"start": 31}, "start must be 0 to 30"),
        ("/api/picture", {"search_id": [1]}, "not kept any more"),
    ],
)
def test_wrong_requests_are_refused_and_change_nothing(session: Session, path: str, request_: Any, words: str):
    before = session.moments
    with pytest.raises(ValueError, match=words):
        session.answer(path, request_)
    assert session.moments is before
