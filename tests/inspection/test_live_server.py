"""The live page with a real search: it agrees with the static page, in requests and in a browser."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flax")

from inspection.browser import open_browser
from inspection.browser import open_page as open_tab
from inspection.serving import serving
from inspection.subjects import make_subject
from inspection.test_server import open_page, post
from spo.inspection.episode import Origin, record_episode
from spo.inspection.html import write_page
from spo.inspection.server import Server
from spo.inspection.session import Session

ORIGIN = Origin("runs/x", "best", 100)


@contextlib.contextmanager
def live_server(seed: int = 0) -> Iterator[Server]:
    subject = make_subject()
    server = Server(lambda: Session(subject, ORIGIN, seed), is_compiling=lambda: subject.compiling)
    with serving(server):
        yield server


def without_times(step: dict[str, Any]) -> dict[str, Any]:
    """Returns a step without what only a live decision has, and without what a clock measured."""
    own = ("seconds", "compile_seconds", "search_id")
    decision = step["decision"] and {name: value for name, value in step["decision"].items() if name not in own}
    return {**step, "decision": decision}


def test_the_live_page_shows_the_searches_of_the_static_page():
    subject, seed = make_subject(), 3
    static = record_episode(subject, ORIGIN, seed=seed, settings=subject.own_settings, max_steps=3)
    static = json.loads(json.dumps(static))  # as the page reads it
    with live_server(seed) as server:
        session = open_page(server)
        steps: dict[int, Any] = {}
        pictures: dict[str, Any] = {}
        for index, step in enumerate(static["steps"]):
            answer = post(server, "/api/search", {"index": index, "settings": {}, "seed": seed}, session)
            assert answer.status == 200, answer
            steps[index] = answer["steps"][0]
            pictures |= answer["pictures"]
            if step["decision"] is not None:
                request = {"index": index, "action": step["decision"]["action"], "settings": {}, "seed": seed}
                played = post(server, "/api/step", request, session)
                assert played.status == 200, played
                pictures |= played["pictures"]
                steps[index] |= {name: played["steps"][0][name] for name in ("taken", "reward")}
                assert (
                    without_times(played["steps"][1])["decision"]
                    == (without_times(static["steps"][index + 1])["decision"])
                )
    assert len(steps) == len(static["steps"]) > 1
    for index, step in enumerate(static["steps"]):
        assert without_times(steps[index]) == without_times(step)
    assert pictures == static["pictures"]


def test_two_clients_play_their_own_episodes():
    with live_server() as server:
        first, second = open_page(server), open_page(server)
        start = post(server, "/api/search", {"index": 0, "settings": {}, "seed": 0}, second)
        answers: list[Any] = []

        def play(session: str, action: int) -> None:
            answers.append(
                post(server, "/api/step", {"index": 0, "action": action, "settings": {}, "seed": 0}, session)
            )

        threads = [threading.Thread(target=play, args=arguments) for arguments in ((first, 0), (second, 4))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [answer.status for answer in answers] == [200, 200]
        shown = [answer["steps"][1]["picture"] for answer in answers]
        assert shown[0] != shown[1]
        assert post(server, "/api/undo", {}, first)["length"] == 1
        again = post(server, "/api/search", {"index": 0, "settings": {}, "seed": 0}, second)
        assert again["length"] == 2
        assert again["steps"][0]["picture"] == start["steps"][0]["picture"]


@pytest.mark.parametrize(
    ("path", "request_", "words"),
    [
        ("/api/search", {"index": 9}, "index must be a step from 0 to 0"),
        ("/api/search", {"settings": {"num_particles": 3}}, "num_particles must be one of"),
        ("/api/search", {"settings": {"num_particles": 2**40}}, "num_particles must be one of"),
        ("/api/search", {"settings": {"code": "x"}}, "There is no setting"),
        ("/api/search", {"seed": -1}, "seed must lie between"),
        ("/api/search", {"path": "/etc/passwd"}, "There is no field 'path'"),
        ("/api/step", {"action": 99}, "action must be 0 to"),
        ("/api/reset", {"seed": 0, "start": 10**9}, "start must be"),
        ("/api/undo", {}, "there is no step to take back"),
        ("/api/picture", {"search_id": 77, "place": [0, 0]}, "search again"),
    ],
)
def test_wrong_fields_are_sentences(path, request_, words):
    with live_server() as server:
        reply = post(server, path, request_, open_page(server))
    assert reply.status == 400
    assert words in reply["error"]


# --- In a browser -----------------------------------------------------------------------------------------------------
def labels(page: Any) -> list[str]:
    return page.locator(".dot").evaluate_all("dots => dots.map(dot => dot.getAttribute('aria-label'))")


@pytest.mark.program
def test_static_and_live_page_show_the_same_search(tmp_path: Path):
    subject = make_subject()
    document = record_episode(subject, ORIGIN, seed=0, settings=subject.own_settings, max_steps=2)
    write_page(tmp_path / "page.html", document)
    size = {"width": 1280, "height": 900}
    with open_browser() as browser, live_server() as server:
        with open_tab(browser, viewport=size) as static:
            static.goto((tmp_path / "page.html").as_uri())
            static.wait_for_selector(".dot")
            expected = labels(static)
        with open_tab(browser, viewport=size) as live:
            live.goto(server.address)
            live.wait_for_selector(".dot")
            assert labels(live) == expected
            live.locator("[aria-label='Settings of the search'] input[name=seed]").fill("7")
            live.get_by_role("button", name="Search again").click()
            live.wait_for_function(
                "before => [...document.querySelectorAll('.dot')].map(d => "
                "d.getAttribute('aria-label')).join() !== before",
                arg=",".join(expected),
            )


@pytest.mark.program
def test_two_browsers_are_served_at_once():
    with open_browser() as browser, live_server() as server, contextlib.ExitStack() as stack:
        first, second = (stack.enter_context(open_tab(browser)) for _ in range(2))
        for page in (first, second):
            page.goto(server.address)
            page.wait_for_selector(".dot")
        first.locator("button.play").nth(3).click()
        first.wait_for_selector("output:text-is('before move 2')")
        assert second.locator("output").inner_text() == "before move 1"


# --- The command ------------------------------------------------------------------------------------------------------
@pytest.mark.program
def test_the_command_serves_until_ctrl_c(tmp_path: Path):
    sizes = ["--num-envs", "4", "--rollout-length", "2", "--sequence-length", "2", "--batch-size", "2"]
    sizes += ["--network.width", "8", "--evaluation.num-evaluations", "1", "--evaluation.final-episodes", "8"]
    train = ["train", "--task", "tiny/chain", "--steps", "8", "--run", "run", "--quiet", *sizes]
    spo = [sys.executable, "-m", "spo"]
    subprocess.run([*spo, *train], cwd=tmp_path, check=True, capture_output=True)
    command = [*spo, "inspect", "run", "--serve"]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S+", server.stdout.readline())
        assert found, server.stderr.read()
        with urllib.request.urlopen(found[0]) as page:
            assert b"spo inspect" in page.read()
        port = int(found[0].split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)):  # as a browser keeps one
            os.kill(server.pid, signal.SIGINT)
            out, err = server.communicate(timeout=60)
    assert server.returncode == 130, (out, err)
    assert "The server has ended." in out
    assert "Traceback" not in err
