"""Reading, caching and downloading levels, with small generated files and a local server that can simulate faults."""

import hashlib
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles.sokoban_text import level_to_text
from spo.environments.boxoban import (
    DownloadReport,
    PublicFile,
    boxoban,
    data_folder,
    download,
    downloads,
    load_split,
    manifest,
    parse_levels,
    public_files,
    read_split,
    split_names,
    splits,
)
from spo.environments.sokoban import level_from_text

# --- Generated files --------------------------------------------------------------------------------------------------


def make_rows(index: int) -> list[str]:
    """An empty room with an agent, boxes and targets at places that depend on the index."""
    inside = np.full(64, " ")
    places = np.random.default_rng(index).permutation(64)
    inside[places[0]] = "@"
    inside[places[1:5]] = "$"
    inside[places[5:9]] = "."
    return ["#" * 10, *("#" + "".join(row) + "#" for row in inside.reshape(8, 8)), "#" * 10]


def make_text(num_levels: int, seed: int = 0, first_number: int = 0) -> bytes:
    lines = []
    for i in range(num_levels):
        lines += [f"; {first_number + i}", *make_rows(1000 * seed + i), ""]
    return "".join(line + "\n" for line in lines).encode()


def make_split(num_files: int, num_levels: int, with_hash: bool, folder: str = "hard") -> dict[PublicFile, bytes]:
    texts = [make_text(num_levels, seed) for seed in range(num_files)]
    return {
        PublicFile(f"{folder}/{i:03d}.txt", num_levels, hashlib.sha256(text).hexdigest() if with_hash else None): text
        for i, text in enumerate(texts)
    }


def put(folder: Path, texts: dict[PublicFile, bytes]) -> None:
    for file, text in texts.items():
        (folder / file.path).parent.mkdir(parents=True, exist_ok=True)
        (folder / file.path).write_bytes(text)


@pytest.fixture
def with_manifest(monkeypatch):
    """Returns a function that replaces the manifest."""

    def replace_manifest(**splits: dict[PublicFile, bytes]) -> None:
        monkeypatch.setattr(manifest, "_manifest", lambda: {name: tuple(files) for name, files in splits.items()})

    return replace_manifest


@pytest.fixture
def hard(with_manifest) -> dict[PublicFile, bytes]:
    """A small data set: a split "hard" of three files with known hashes."""
    texts = make_split(num_files=3, num_levels=2, with_hash=True)
    with_manifest(hard=texts)
    return texts


# --- Reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_number", [0, 995])
def test_parse_levels_agrees_with_reading_row_by_row(first_number):
    levels = parse_levels(make_text(12, first_number=first_number), "some.txt")
    assert levels.dtype == np.uint8
    np.testing.assert_array_equal(levels, np.stack([level_from_text(make_rows(i)) for i in range(12)]))


def test_parse_levels_reads_boxes_and_agents_on_targets():
    rows = ["#" * 10, "#+*$$$.. #", *["#        #"] * 7, "#" * 10]
    text = "\n".join(["; 0", *rows, "", ""]).encode()
    assert level_to_text(parse_levels(text, "some.txt")[0]) == rows


def with_line(line_number: int, line: str) -> bytes:
    lines = make_text(3).decode().split("\n")
    lines[line_number - 1] = line
    return "\n".join(lines).encode()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", r'bad\.txt, line 1: .* starts with a line such as "; 0", this one with nothing'),
        (b"<html>Not found</html>\n", r"bad\.txt, line 1: .*<html>"),
        (with_line(13, "; 7"), r'bad\.txt, level 1, line 13: expected the line "; 1", found \'; 7\''),
        (with_line(15, "#" * 9), r"bad\.txt, level 1, line 15: a row has 10 characters, this one has 9"),
        (with_line(15, "#" * 10 + "\r"), r"bad\.txt, level 1, line 15: a row has 10 characters, this one has 11"),
        (with_line(15, "#    x   #"), r"bad\.txt, level 1, line 15: 'x' is not a cell"),
        (with_line(15, "#    ;   #"), r"bad\.txt, level 1, line 15: ';' is not a cell"),
        (with_line(15, "         #"), r"bad\.txt, level 1, line 15: the outermost cells"),
        (with_line(14, "#### #####"), r"bad\.txt, level 1, line 14: the outermost cells"),
        (with_line(24, "# a note"), r"bad\.txt, level 1, line 24: expected an empty line"),
        (make_text(3).replace(b"@", b" ", 1), r"bad\.txt, level 0, line 1: the level has 0 agents instead of 1"),
        (make_text(3).replace(b"$", b" ", 1), r"bad\.txt, level 0, line 1: the level has 3 boxes instead of 4"),
        (make_text(3).replace(b".", b" ", 1), r"bad\.txt, level 0, line 1: the level has 3 targets instead of 4"),
        (make_text(3).replace(b".", b"@", 1), r"bad\.txt, level 0, line 1: the level has 2 agents instead of 1"),
        (make_text(3)[:-1], r"bad\.txt, level 2, line 36: the file ends after 11 of the 12 lines"),
        (make_text(3)[:-25], r"bad\.txt, level 2, line 33: a row has 10 characters, this one has 9"),
    ],
)
def test_a_bad_file_is_refused_with_its_name_level_line_and_fault(text, complaint):
    with pytest.raises(ValueError, match=complaint):
        parse_levels(text, "bad.txt")


@settings(max_examples=300)
@given(
    position=st.integers(0, 10**9),
    removed=st.integers(0, 30),
    inserted=st.text(alphabet="# .$@*+;\n\r0123x", max_size=4).map(str.encode),
)
def test_a_changed_file_is_read_or_refused_with_a_reason(position, removed, inserted):
    """The fast reader refuses without a reason. The slow one must always find it."""
    text = make_text(3)
    position %= len(text)
    text = text[:position] + inserted + text[position + removed :]
    try:
        levels = parse_levels(text, "some.txt")
    except ValueError as error:
        complaint = str(error)
    else:
        lines = [line for level in levels for line in ["; n", *level_to_text(level), ""]]
        assert re.sub("; [0-9]+", "; n", text.decode()) == "\n".join([*lines, ""])
        return
    assert re.match(r"some\.txt,( level \d+,)? line \d+: ", complaint)


# --- Manifest ---------------------------------------------------------------------------------------------------------


def test_the_manifest_lists_the_public_data_set():
    expected = {  # files, levels
        "unfiltered-train": (900, 900_000),
        "unfiltered-valid": (100, 100_000),
        "unfiltered-test": (1, 1_000),
        "medium-train": (450, 450_000),
        "medium-valid": (50, 50_000),
        "hard": (4, 3_332),
    }
    assert set(split_names()) == set(expected)
    for split, (num_files, num_levels) in expected.items():
        files = public_files(split)
        assert (len(files), sum(file.num_levels for file in files)) == (num_files, num_levels)
        assert [file.path for file in files] == [f"{split.replace('-', '/')}/{i:03d}.txt" for i in range(num_files)]
        assert all(file.sha256 is None or re.fullmatch("[0-9a-f]{64}", file.sha256) for file in files)
    everything = [file for split in expected for file in public_files(split)]
    hashes = [file.sha256 for file in everything if file.sha256 is not None]
    assert len(hashes) == len(set(hashes)) >= 110
    # The splits that results are reported on can be verified in full.
    assert all(file.sha256 for split in ("hard", "unfiltered-test") for file in public_files(split))


def test_unknown_splits_are_refused_with_the_known_ones():
    for call in (lambda: load_split("easy"), lambda: download(["easy"])):
        with pytest.raises(ValueError, match=r"no Boxoban split 'easy'; choose one of unfiltered-train, .*hard"):
            call()


def test_data_folder_follows_the_environment_variable(monkeypatch, tmp_path):
    monkeypatch.setenv("SPO_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("SPO_DATA")
    assert data_folder() == Path.home() / ".cache" / "spo"


# --- Loading and the cache --------------------------------------------------------------------------------------------


def expected_levels(texts: dict[PublicFile, bytes]) -> np.ndarray:
    return np.concatenate([parse_levels(text, file.path) for file, text in texts.items()])


def forbid_parsing(monkeypatch) -> None:
    def parse(*_):
        raise AssertionError("a text file was parsed")

    monkeypatch.setattr(manifest, "parse_levels", parse)


def test_the_second_load_is_a_memory_map_and_parses_nothing(hard, tmp_path, monkeypatch):
    put(tmp_path, hard)
    first = load_split("hard", tmp_path)
    with monkeypatch.context() as patch:
        forbid_parsing(patch)
        second = load_split("hard", tmp_path)
    assert isinstance(second, np.memmap)
    np.testing.assert_array_equal(first, expected_levels(hard))
    np.testing.assert_array_equal(second, expected_levels(hard))
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["hard.json", "hard.npy"]


@pytest.mark.parametrize("with_hash", [True, False])
def test_a_cache_made_from_other_files_is_replaced(tmp_path, with_manifest, with_hash):
    for texts in (make_split(2, 2, with_hash), make_split(3, 2, with_hash)):
        with_manifest(hard=texts)
        put(tmp_path, texts)
        np.testing.assert_array_equal(load_split("hard", tmp_path), expected_levels(texts))
    # The same names and sizes, other levels.
    changed = {file._replace(sha256=None): make_text(2, seed=50 + i) for i, file in enumerate(texts)}
    with_manifest(hard=changed)
    put(tmp_path, changed)
    np.testing.assert_array_equal(load_split("hard", tmp_path), expected_levels(changed))


def test_a_cache_in_other_cell_codes_is_replaced(hard, tmp_path, monkeypatch):
    put(tmp_path, hard)
    load_split("hard", tmp_path)
    monkeypatch.setattr(splits, "CELL_CHARACTERS", splits.CELL_CHARACTERS[::-1])
    forbid_parsing(monkeypatch)
    with pytest.raises(AssertionError, match="a text file was parsed"):
        load_split("hard", tmp_path)


def flip_last_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda cache: (cache / "hard.npy").write_bytes((cache / "hard.npy").read_bytes()[:-50]),
        lambda cache: flip_last_bit(cache / "hard.npy"),
        lambda cache: (cache / "hard.npy").write_bytes(b""),
        lambda cache: (cache / "hard.npy").unlink(),
        lambda cache: (cache / "hard.json").write_text("{"),
        lambda cache: (cache / "hard.json").unlink(),
    ],
    ids=["array cut", "a bit flipped", "array empty", "no array", "record cut", "no record"],
)
def test_a_damaged_cache_is_replaced(hard, tmp_path, monkeypatch, damage):
    put(tmp_path, hard)
    load_split("hard", tmp_path)
    damage(tmp_path / "cache")
    np.testing.assert_array_equal(load_split("hard", tmp_path), expected_levels(hard))
    forbid_parsing(monkeypatch)
    np.testing.assert_array_equal(load_split("hard", tmp_path), expected_levels(hard))


@pytest.mark.parametrize("name", ["hard.npy", "hard.json"])
def test_an_interrupted_write_leaves_the_old_cache_or_none(hard, tmp_path, monkeypatch, name):
    """An interrupt half-way through one of the two files. No half-written file gets a name that is read."""
    put(tmp_path, hard)
    write_bytes = Path.write_bytes

    def write_half(path: Path, content: bytes) -> int:
        if path.name.startswith(name):
            write_bytes(path, content[: len(content) // 2])
            raise KeyboardInterrupt
        return write_bytes(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        with pytest.raises(KeyboardInterrupt):
            load_split("hard", tmp_path)
    assert not (tmp_path / "cache" / name).exists()
    assert not list((tmp_path / "cache").glob("*.part"))
    np.testing.assert_array_equal(load_split("hard", tmp_path), expected_levels(hard))


def test_levels_load_from_a_folder_that_cannot_be_written(hard, tmp_path):
    put(tmp_path, hard)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.warns(UserWarning, match="cannot be cached"):
        levels = load_split("hard", tmp_path)
    np.testing.assert_array_equal(levels, expected_levels(hard))


def test_a_file_that_is_not_the_public_one_is_refused(hard, tmp_path):
    put(tmp_path, hard)
    (tmp_path / "hard/001.txt").write_bytes(make_text(2, seed=77))  # valid levels, but other ones
    with pytest.raises(ValueError, match=r"hard/001\.txt is not the public file.*spo download boxoban hard"):
        load_split("hard", tmp_path)


def test_a_file_of_unknown_hash_with_too_few_levels_is_refused(with_manifest, tmp_path):
    texts = make_split(2, 3, with_hash=False)
    with_manifest(hard=texts)
    put(tmp_path, texts)
    (tmp_path / "hard/001.txt").write_bytes(make_text(2))
    with pytest.raises(ValueError, match=r"hard/001\.txt holds 2 levels, the public file 3"):
        load_split("hard", tmp_path)


def test_the_error_of_missing_levels_names_the_download_command(hard, tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"`spo download boxoban hard` downloads.*sokoban/generated"):
        boxoban(train="hard")
    with pytest.raises(FileNotFoundError, match=r"`spo download boxoban hard --folder .*elsewhere`"):
        boxoban(train="hard", folder=tmp_path / "elsewhere")


def test_a_part_of_a_split_is_used_only_on_request(hard, tmp_path):
    part = dict(list(hard.items())[:1] + list(hard.items())[2:])
    put(tmp_path, part)
    for load in (load_split, read_split):
        with pytest.raises(
            FileNotFoundError, match=r"2 of the 3 files of hard.*missing is hard/001\.txt.*allow_partial"
        ):
            load("hard", tmp_path)
        np.testing.assert_array_equal(load("hard", tmp_path, allow_partial=True), expected_levels(part))
    # When the rest has arrived, the cache of the part is not used for the whole.
    put(tmp_path, hard)
    for allow_partial in (False, True):
        np.testing.assert_array_equal(load_split("hard", tmp_path, allow_partial=allow_partial), expected_levels(hard))


def test_an_empty_folder_is_not_a_part_of_a_split(hard, tmp_path):
    with pytest.raises(FileNotFoundError, match="has no level of hard"):
        load_split("hard", tmp_path, allow_partial=True)


def test_boxoban_starts_training_and_evaluation_in_their_own_levels(with_manifest, tmp_path, monkeypatch):
    train, evaluation = make_split(2, 2, True, "unfiltered/train"), {}
    for i, (file, _) in enumerate(make_split(1, 3, True).items()):
        text = make_text(3, seed=9 + i)
        evaluation[file._replace(sha256=hashlib.sha256(text).hexdigest())] = text
    with_manifest(**{"unfiltered-train": train, "hard": evaluation})
    monkeypatch.setenv("SPO_DATA", str(tmp_path))
    put(tmp_path / "boxoban", {**train, **evaluation})

    task = boxoban(time_limit=1)
    for role, texts in (("train", train), ("evaluation", evaluation)):
        environment = getattr(task, role)
        keys = jax.random.split(jax.random.key(0), 100)
        state, timestep = jax.jit(jax.vmap(environment.reset))(keys)
        starts = {bytes(np.asarray(board)) for board in timestep.observation}
        # Chance to miss one of at most 4 levels in 100 draws: 4 * 0.75^100 < 1e-11.
        assert starts == {bytes(level) for level in expected_levels(texts)}
        _, timestep = jax.jit(environment.step)(keys[0], jax.tree.map(lambda x: x[0], state), 0)
        assert bool(timestep.truncated)
        assert not bool(timestep.terminated)
        ending = getattr(boxoban(time_limit=1, time_limit_is_termination=True), role)
        _, timestep = jax.jit(ending.step)(keys[0], jax.tree.map(lambda x: x[0], state), 0)
        assert bool(timestep.terminated)


# --- Fetching ---------------------------------------------------------------------------------------------------------


class Server:
    """Serves files by path. `faults[path]` lists the faults of the next requests for it."""

    def __init__(self, texts: dict[PublicFile, bytes]):
        self.content = {f"/{file.path}": text for file, text in texts.items()}
        self.faults: dict[str, list[str]] = defaultdict(list)
        self.requests: list[str] = []
        self.times: list[float] = []
        self.stalled = threading.Event()
        self.resume = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                server.answer(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append(handler.path.removeprefix("/"))
        self.times.append(time.monotonic())
        fault = self.faults[handler.path.removeprefix("/")]
        fault = fault.pop(0) if fault else "serve"
        body = self.content.get(handler.path)
        status = 404 if body is None else int(fault) if fault.isdigit() else 200
        if status != 200:
            handler.send_response(status)
            if status == 429:
                handler.send_header("Retry-After", "1")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return
        handler.send_response(200)
        if fault == "no length":  # HTTP/1.0: the end of the connection is the end of the file
            body = body[: len(body) // 2]
        else:
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if fault == "truncate":
            body = body[: len(body) // 2]
        elif fault == "corrupt":
            body = body.replace(b" ", b"#", 1)
        elif fault == "other levels":
            body = make_text(body.count(b";"), seed=321)
        elif fault == "drop":
            handler.wfile.write(body[:100])
            handler.wfile.flush()
            # A reset of the connection, as after a network failure.
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            handler.connection.close()
            return
        elif fault == "stall":
            handler.wfile.write(body[:100])
            handler.wfile.flush()
            self.stalled.set()
            self.resume.wait(30)
            return
        handler.wfile.write(body)


@pytest.fixture(autouse=True)
def without_a_proxy(monkeypatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def serve() -> Iterator:
    servers = []

    def start(texts: dict[PublicFile, bytes]) -> Server:
        server = Server(texts)
        server.http.handle_error = lambda *_: None  # clients that disconnect are part of the tests
        server.thread.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.resume.set()
        server.http.shutdown()
        server.thread.join()
        server.http.server_close()


quick_download = partial(download, first_wait_seconds=0.01, num_attempts=3)


def assert_holds(folder: Path, texts: dict[PublicFile, bytes]) -> None:
    """Asserts that the folder has these files and no others."""
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == {file.path: text for file, text in texts.items()}


def test_download_fetches_verifies_and_reports(hard, serve, tmp_path, capsys):
    server = serve(hard)
    report = quick_download(["hard", "hard"], tmp_path, server.url)
    paths = tuple(file.path for file in hard)
    assert report == DownloadReport(tmp_path, (), paths, paths, {}, {}, (), ())
    assert report.complete
    assert_holds(tmp_path, hard)
    assert sorted(server.requests) == sorted(paths)
    words = capsys.readouterr().out
    assert (
        "0 files already present, 3 fetched; 3 verified by checksum, 0 only checked by format; 0 failed, 0 not tried."
        in words
    )
    assert "again" not in words
    np.testing.assert_array_equal(load_split("hard", tmp_path), expected_levels(hard))


@pytest.mark.parametrize("ending", ["", "/"])
def test_base_url_may_end_with_a_slash_or_not(hard, serve, tmp_path, ending):
    server = serve({file._replace(path=f"mirror/{file.path}"): text for file, text in hard.items()})
    assert quick_download(["hard"], tmp_path, f"{server.url}/mirror{ending}").complete


def test_download_goes_to_the_data_folder_by_default(hard, serve, tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_DATA", str(tmp_path))
    quick_download(["hard"], base_url=serve(hard).url)
    assert_holds(tmp_path / "boxoban", hard)


def test_a_second_download_fetches_nothing(hard, serve, tmp_path):
    server = serve(hard)
    quick_download(["hard"], tmp_path, server.url)
    server.requests.clear()
    report = quick_download(["hard"], tmp_path, server.url)
    assert server.requests == []
    assert (len(report.present), report.fetched, len(report.verified)) == (3, (), 3)


@pytest.mark.parametrize("fault", ["truncate", "no length", "corrupt", "other levels", "drop", "500", "503", "429"])
def test_a_temporary_fault_is_retried(hard, serve, tmp_path, fault):
    server = serve(hard)
    server.faults["hard/001.txt"] = [fault]
    report = quick_download(["hard"], tmp_path, server.url)
    assert report.complete
    assert len(report.verified) == 3
    assert server.requests.count("hard/001.txt") == 2
    assert_holds(tmp_path, hard)


@pytest.mark.parametrize("fault", ["truncate", "no length", "drop", "500"])
@pytest.mark.parametrize("with_hash", [True, False])
def test_a_permanent_fault_is_reported_and_a_later_run_continues(
    with_manifest, serve, tmp_path, capsys, fault, with_hash
):
    texts = make_split(3, 2, with_hash)
    with_manifest(hard=texts)
    server = serve(texts)
    server.faults["hard/001.txt"] = [fault] * 3
    report = quick_download(["hard"], tmp_path, server.url)
    assert not report.complete
    assert list(report.failed) == ["hard/001.txt"]
    assert report.fetched == ("hard/000.txt", "hard/002.txt")
    assert server.requests.count("hard/001.txt") == 3
    assert not (tmp_path / "hard/001.txt").exists()
    assert not list(tmp_path.rglob("*.part"))
    words = capsys.readouterr().out
    assert "1 failed" in words
    assert "Run the same command again to continue" in words

    server.requests.clear()
    report = quick_download(["hard"], tmp_path, server.url)
    assert report.complete
    assert server.requests == ["hard/001.txt"]
    assert (tmp_path / "hard/001.txt").read_bytes() == server.content["/hard/001.txt"]


def test_a_missing_file_is_requested_once(hard, serve, tmp_path):
    server = serve(hard)
    del server.content["/hard/001.txt"]
    report = quick_download(["hard"], tmp_path, server.url)
    assert "404" in report.failed["hard/001.txt"]
    assert server.requests.count("hard/001.txt") == 1


def test_a_wrong_checksum_is_reported_and_the_bytes_are_set_aside(hard, serve, tmp_path, capsys):
    server = serve(hard)
    server.faults["hard/001.txt"] = ["other levels"] * 3
    report = quick_download(["hard"], tmp_path, server.url)
    wrong = make_text(2, seed=321)
    assert not (tmp_path / "hard/001.txt").exists()
    assert (tmp_path / "hard/001.txt.corrupt").read_bytes() == wrong
    assert report.set_aside == (str(tmp_path / "hard/001.txt.corrupt"),)
    assert report.verified == ("hard/000.txt", "hard/002.txt")
    words = capsys.readouterr().out
    expected = next(file.sha256 for file in hard if file.path == "hard/001.txt")
    assert f"has SHA-256 {hashlib.sha256(wrong).hexdigest()}, the public file {expected}" in words
    with pytest.raises(FileNotFoundError, match="2 of the 3 files"):
        load_split("hard", tmp_path)


@pytest.mark.parametrize("damage", [make_text(2, seed=321), make_text(2)[:100], b""])
@pytest.mark.parametrize("with_hash", [True, False])
def test_a_damaged_file_in_the_folder_is_set_aside_and_fetched_again(with_manifest, serve, tmp_path, with_hash, damage):
    texts = make_split(3, 2, with_hash)
    with_manifest(hard=texts)
    put(tmp_path, texts)
    (tmp_path / "hard/001.txt").write_bytes(damage)
    server = serve(texts)
    report = quick_download(["hard"], tmp_path, server.url)
    if not with_hash and damage == make_text(2, seed=321):
        # Valid levels without a known hash are kept and reported as unverified.
        assert server.requests == []
        assert report.unverified["hard/001.txt"] == hashlib.sha256(damage).hexdigest()
        return
    assert server.requests == ["hard/001.txt"]
    assert (report.present, report.fetched) == (("hard/000.txt", "hard/002.txt"), ("hard/001.txt",))
    assert (tmp_path / "hard/001.txt.corrupt").read_bytes() == damage
    assert (tmp_path / "hard/001.txt").read_bytes() == server.content["/hard/001.txt"]


def test_files_of_unknown_hash_are_reported_as_unverified_with_their_hash(with_manifest, serve, tmp_path, capsys):
    known, unknown = make_split(1, 2, True), make_split(2, 3, False, "medium/valid")
    with_manifest(**{"hard": known, "medium-valid": unknown})
    report = quick_download(["hard", "medium-valid"], tmp_path, serve({**known, **unknown}).url)
    assert report.complete
    assert report.verified == ("hard/000.txt",)
    hashes = {file.path: hashlib.sha256(text).hexdigest() for file, text in unknown.items()}
    assert report.unverified == hashes
    words = capsys.readouterr().out
    for path, sha256 in hashes.items():
        assert f"{sha256}  {path}" in words
    assert "2 files were only checked by format" in words
    assert "medium/valid/000.txt to 001.txt (2 files)" in words
    assert "1 verified by checksum, 2 only checked by format" in words
    lines = [f"{sha256}  {path}\n" for path, sha256 in hashes.items()]
    assert (tmp_path / "unverified.sha256").read_text() == "".join(lines)


def test_many_files_of_unknown_hash_are_named_by_range(with_manifest, serve, tmp_path, capsys):
    """The terminal shows a few hashes, and a file has all of them."""
    unknown = make_split(12, 1, False, "medium/valid")
    with_manifest(**{"medium-valid": unknown})
    quick_download(["medium-valid"], tmp_path, serve(unknown).url)
    words = capsys.readouterr().out
    assert "12 files were only checked by format" in words
    assert "medium/valid/000.txt to 011.txt (12 files)" in words
    assert words.count("medium/valid/0") == 1 + 10
    assert f"{tmp_path / 'unverified.sha256'} has all of them" in words
    assert len((tmp_path / "unverified.sha256").read_text().splitlines()) == 12


@pytest.mark.parametrize("wrong", [make_text(2), b"<html>Please log in</html>"], ids=["too few levels", "a web page"])
def test_files_of_unknown_hash_must_still_have_the_format_and_the_number_of_levels(
    with_manifest, serve, tmp_path, wrong
):
    texts = make_split(1, 3, False)
    with_manifest(hard=texts)
    server = serve(texts)
    server.content["/hard/000.txt"] = wrong
    report = quick_download(["hard"], tmp_path, server.url)
    assert list(report.failed) == ["hard/000.txt"]
    assert not (tmp_path / "hard/000.txt").exists()


def test_waits_between_attempts_double_and_respect_retry_after(hard, serve, tmp_path):
    server = serve(hard)
    server.faults["hard/000.txt"] = ["500", "500", "429"]
    download(["hard"], tmp_path, server.url, num_attempts=4, first_wait_seconds=0.1)
    waits = np.diff([at for path, at in zip(server.requests, server.times, strict=True) if path == "hard/000.txt"])
    assert waits[0] >= 0.1
    assert waits[1] >= 0.2
    assert waits[2] >= 1.0  # Retry-After; doubling would give 0.4


def test_a_dead_server_ends_the_download_early(with_manifest, tmp_path, capsys):
    texts = make_split(60, 1, True)
    with_manifest(hard=texts)
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        report = quick_download(["hard"], tmp_path, url)
    assert len(report.failed) + len(report.not_tried) == 60
    assert downloads.MAX_FAILED_FILES <= len(report.failed) < 60
    assert report.not_tried
    assert "Run the same command again" in capsys.readouterr().out


def interrupt_at(path: str, monkeypatch) -> None:
    """Raises KeyboardInterrupt when this file is requested."""
    request = downloads._request

    def request_until_interrupted(url: str) -> bytes:
        if url.endswith(path):
            raise KeyboardInterrupt
        return request(url)

    monkeypatch.setattr(downloads, "_request", request_until_interrupted)


def test_an_interrupted_download_can_be_continued(with_manifest, serve, tmp_path, monkeypatch):
    texts = make_split(200, 1, True)
    with_manifest(hard=texts)
    server = serve(texts)
    monkeypatch.setattr(downloads, "NUM_CONNECTIONS", 1)
    with monkeypatch.context() as patch:
        interrupt_at("hard/003.txt", patch)
        with pytest.raises(KeyboardInterrupt):
            quick_download(["hard"], tmp_path, server.url)
    # Files before the interrupt are there, and perhaps a few that were in progress. The rest was cancelled.
    kept = {file: text for file, text in texts.items() if (tmp_path / file.path).exists()}
    assert list(kept)[:3] == list(texts)[:3]
    assert len(kept) < 150
    assert_holds(tmp_path, kept)
    server.requests.clear()
    report = quick_download(["hard"], tmp_path, server.url)
    assert server.requests == [file.path for file in texts if file not in kept]
    assert (len(report.present), len(report.verified)) == (len(kept), 200)
    assert_holds(tmp_path, texts)


def test_an_interrupt_does_not_wait_for_further_attempts(hard, serve, tmp_path, monkeypatch):
    server = serve(hard)
    server.faults["hard/000.txt"] = ["500"] * 3
    interrupt_at("hard/002.txt", monkeypatch)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        download(["hard"], tmp_path, server.url, num_attempts=3, first_wait_seconds=5.0)
    assert time.monotonic() - start < 5.0


def test_a_killed_download_leaves_nothing_half_written(with_manifest, serve, tmp_path):
    """SIGKILL to a process that has received half of a file."""
    texts = make_split(3, 2, True)
    with_manifest(hard=texts)
    server = serve(texts)
    server.faults["hard/002.txt"] = ["stall"]
    program = (
        "from spo.environments.boxoban import PublicFile, download, manifest\n"
        f"files = {[tuple(file) for file in texts]!r}\n"
        "manifest._manifest = lambda: {'hard': tuple(PublicFile(*file) for file in files)}\n"
        f"download(['hard'], {str(tmp_path)!r}, {server.url!r})\n"
    )
    environment = os.environ | {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(Path(manifest.__file__).parents[3])}
    child = subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL)
    try:
        assert server.stalled.wait(60)
        deadline = time.monotonic() + 30
        while len(list(tmp_path.rglob("*.txt"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    assert_holds(tmp_path, dict(list(texts.items())[:2]))
    server.requests.clear()
    assert quick_download(["hard"], tmp_path, server.url).complete
    assert server.requests == ["hard/002.txt"]
    assert_holds(tmp_path, texts)


def test_a_full_disk_is_an_error_and_leaves_no_partial_file(hard, serve, tmp_path, monkeypatch):
    write_bytes = Path.write_bytes

    def write_half(path: Path, content: bytes) -> int:
        write_bytes(path, content[: len(content) // 2])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_half)
        with pytest.raises(OSError, match="No space left"):
            quick_download(["hard"], tmp_path, serve(hard).url)
    assert_holds(tmp_path, {})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"splits": []}, "Give a list of splits"),
        ({"splits": "hard"}, "Give a list of splits"),
        ({"splits": ["hard"], "base_url": "levels.example"}, "base_url must start with http"),
        ({"splits": ["hard"], "num_attempts": 0}, "num_attempts must be at least 1"),
    ],
)
def test_download_refuses_invalid_arguments(arguments, complaint, tmp_path):
    with pytest.raises(ValueError, match=complaint):
        download(**arguments, folder=tmp_path)


# --- The public levels ------------------------------------------------------------------------------------------------


def real_levels_folder() -> Path | None:
    """A copy of the public data set or of a part: $SPO_BOXOBAN, or shared/boxoban beside the repository."""
    beside = Path(__file__).parents[3] / "shared" / "boxoban"
    folder = Path(os.environ.get("SPO_BOXOBAN", beside))
    return folder if folder.is_dir() else None


@pytest.mark.skipif(real_levels_folder() is None, reason="no public Boxoban levels at hand (SPO_BOXOBAN)")
def test_the_public_levels_match_the_manifest():
    folder = real_levels_folder()
    num_files_found = 0
    for split in split_names():
        present = [file for file in public_files(split) if (folder / file.path).is_file()]
        if not present:
            continue
        num_files_found += len(present)
        levels = read_split(split, folder, allow_partial=True)
        assert levels.shape == (sum(file.num_levels for file in present), 10, 10)
        agents, boxes, targets = (np.isin(levels, codes).sum(axis=(1, 2)) for codes in ([3, 5], [4, 6], [2, 5, 6]))
        assert set(agents) == {1}
        assert set(boxes) == set(targets) == {4}
        # Against an independent reader, on the last file.
        lines = (folder / present[-1].path).read_text().splitlines()
        rows = [line for line in lines if line and not line.startswith(";")]
        last = np.stack([level_from_text(rows[i : i + 10]) for i in range(0, len(rows), 10)])
        np.testing.assert_array_equal(levels[-len(last) :], last)
    assert num_files_found > 0
