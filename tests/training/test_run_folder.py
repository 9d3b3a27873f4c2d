"""Tests of run folders: the runs that they accept and refuse, and the learners in them."""

import errno
import inspect
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from spo.algorithms.spo import SPOConfig
from spo.environments.rubiks_cube import rubiks_cube
from spo.networks.config import NetworkConfig
from spo.reports.overview import list_overviews
from spo.reports.run_finding import find_runs
from spo.reports.runs import load_run
from spo.training import run_folder
from spo.training.checkpoints import iterations
from spo.training.experiment import EvaluationConfig
from spo.training.exports import read_header, write_learner
from spo.training.locks import RunLock
from spo.training.loop import train
from spo.training.run_folder import RunFolder
from spo.training.saved_learners import export_learner, load_learner
from training.comparing import assert_same_bits, last_state
from training.tiny_run import ENV_STEPS_PER_ITERATION, tiny_experiment


def test_a_run_of_another_version_is_refused(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment())
    record = json.loads(folder.config_path.read_text())
    folder.config_path.write_text(json.dumps({**record, "spo_version": "0.0.1"}))
    for refused in (
        lambda: train(tiny_experiment(), folder.path, resume=True),
        lambda: load_learner(folder.path, "best"),
        lambda: export_learner(folder.path, tmp_path / "learner.npz"),
    ):
        with pytest.raises(ValueError, match=r"written by spo 0\.0\.1 .* install version 0\.0\.1"):
            refused()


def test_a_run_of_an_object_is_continued_in_python(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment())
    assert folder.resume_command == f"spo train --resume {folder.path}"
    record = json.loads(folder.config_path.read_text())
    for change in ({"task": "object:mine"}, {"algorithm": "object:mine"}, {"network": {"kind": "object:mine"}}):
        folder.config_path.write_text(json.dumps(record | change))
        assert folder.resume_command.startswith("spo.train(env, run="), change


def test_an_option_of_the_task_with_its_default_changes_nothing(tmp_path: Path):
    """`spo.train` stores the options that it is given, and the command line leaves out defaults."""
    options = tiny_experiment().task_options
    assert inspect.signature(rubiks_cube).parameters["size"].default == 3
    for stored, given in ((options | {"size": 3}, options), (options, options | {"size": 3})):
        folder = RunFolder.unused(tmp_path / f"run{len(stored)}")
        folder.create(tiny_experiment(task_options=stored)).release()
        folder.check_same(tiny_experiment(task_options=given))
        with pytest.raises(ValueError, match=r"task_options\.size"):
            folder.check_same(tiny_experiment(task_options=given | {"size": 2}))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"task": "brax/ant"}, r"task \('rubiks_cube', now 'brax/ant'\)"),
        ({"config": SPOConfig()}, r"config\.batch_size \(4, now 64\)"),
        ({"network": NetworkConfig(width=32)}, r"network\.width \(16, now 32\)"),
        ({"network": NetworkConfig(channels=(8, 4))}, r"network\.channels \(None, now \[8, 4\]\)"),
        ({"seed": 1}, r"seed \(0, now 1\)"),
        ({"evaluation": EvaluationConfig(num_evaluations=4)}, r"evaluation\.num_evaluations \(3, now 4\)"),
    ],
)
def test_another_experiment_is_refused(tmp_path: Path, changes: dict[str, Any], named: str):
    RunFolder.unused(tmp_path / "run").create(tiny_experiment())
    with pytest.raises(ValueError, match=f"another experiment: .*{named}"):
        train(tiny_experiment(**changes), tmp_path / "run", resume=True)


def test_a_longer_run_is_refused_with_the_commands_that_train_for_longer(tmp_path: Path):
    RunFolder.unused(tmp_path / "run").create(tiny_experiment(steps=300))
    export = rf"`spo export {tmp_path}/run FILE.npz --which last`, then `spo train --from FILE.npz --steps 700`"
    with pytest.raises(ValueError, match=export):
        train(tiny_experiment(steps=1000), tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"another experiment: steps \(300, now 200\)"):
        train(tiny_experiment(steps=200), tmp_path / "run", resume=True)


def test_unsuitable_folders_are_refused(whole_run: Path, tmp_path: Path):
    with pytest.raises(ValueError, match="holds a run already"):
        train(tiny_experiment(), whole_run)
    with pytest.raises(ValueError, match="holds no run"):
        train(tiny_experiment(), tmp_path, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a file"):
        train(tiny_experiment(), tmp_path / "file")
    with pytest.raises(ValueError, match="leave start_from"):
        train(tiny_experiment(), whole_run, resume=True, start_from=tmp_path / "learner.npz")


@pytest.mark.parametrize("leftover", ["start.npz", "checkpoints", "notes.txt"])
def test_a_folder_that_is_not_empty_is_refused_by_name(tmp_path: Path, leftover: str):
    """A leftover start.npz would make the run pretrained, and leftover checkpoints would end another run."""
    folder = tmp_path / "run"
    (folder / leftover).mkdir(parents=True)
    with pytest.raises(ValueError, match=rf"run is not empty and holds no run \(it has {leftover}\): choose another"):
        train(tiny_experiment(), folder)
    assert [path.name for path in folder.iterdir()] == [leftover]


@pytest.mark.parametrize("moment", ["copyfileobj", "write_json", "rename"])
def test_a_process_killed_while_it_creates_a_run_leaves_no_part_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
):
    class Killed(BaseException):
        """Like a signal: what follows in the process does not happen."""

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    source = tmp_path / "learner.npz"
    write_learner(source, {}, {"which": "last", "env_steps": [0]})
    folder = RunFolder.unused(tmp_path / "runs" / "run")
    with monkeypatch.context() as patch:
        owner: Any = {"copyfileobj": run_folder.shutil, "write_json": run_folder.files, "rename": Path}[moment]
        patch.setattr(owner, moment, die)
        patch.setattr(run_folder.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(Killed):
            folder.create(tiny_experiment(), source)
    assert not folder.path.exists()
    assert find_runs(tmp_path) == list_overviews(tmp_path) == []
    assert len(list(folder.path.parent.iterdir())) == 1
    with folder.create(tiny_experiment()):
        assert [path.name for path in folder.path.parent.iterdir()] == ["run"], "what was left is removed"
        assert sorted(path.name for path in folder.path.iterdir()) == ["config.json", "run.lock"]
    assert folder.path.stat().st_mode & 0o777 == 0o777 & ~run_folder._umask()


def test_abandoned_drafts_of_any_name_are_removed(tmp_path: Path):
    """Automatic names are never used again. What is being created, and what others have written, stays."""
    for name in ("killed", "in-use", "just-made", "empty", "foreign"):
        (tmp_path / f".{name}.x.draft").mkdir()
    for name in ("killed", "in-use"):
        (tmp_path / f".{name}.x.draft" / "run.lock").touch()
    (tmp_path / ".killed.x.draft" / "config.json.1234.draft").touch()
    (tmp_path / ".foreign.x.draft" / "run.lock").touch()
    (tmp_path / ".foreign.x.draft" / "thesis.tex").touch()
    os.utime(tmp_path / ".empty.x.draft", (0, 0))
    with RunLock(tmp_path / ".in-use.x.draft").acquire(), RunFolder(tmp_path / "run").create(tiny_experiment()):
        left = {path.name for path in tmp_path.iterdir()}
    assert left == {"run", ".in-use.x.draft", ".just-made.x.draft", ".foreign.x.draft"}


def test_a_folder_that_cannot_be_replaced_is_filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A mounted one can't be renamed onto. A link is followed."""

    def busy(*_: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    source = tmp_path / "learner.npz"
    write_learner(source, {}, {"which": "last", "env_steps": [0]})
    (tmp_path / "mounted").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", busy)
        lock = RunFolder.unused(tmp_path / "mounted").create(tiny_experiment(), source)
        with pytest.raises(ValueError, match="is in use by process"):
            RunFolder.open(tmp_path / "mounted").open_to_train()
        lock.release()
        with pytest.raises(OSError, match=r"The folder .*absent can't be created: Device or resource busy\."):
            RunFolder.unused(tmp_path / "absent").create(tiny_experiment())
    assert {path.name for path in (tmp_path / "mounted").iterdir()} == {"config.json", "run.lock", "start.npz"}
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    RunFolder.unused(tmp_path / "link").create(tiny_experiment())
    assert RunFolder.open(tmp_path / "link").experiment == tiny_experiment()
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"learner.npz", "mounted", "disk", "link"}


def test_leftovers_of_a_killed_run_are_removed_when_it_is_resumed(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment()).release()
    left = ["4.removed", "8.unsealed", "8.unsealed.orbax-checkpoint-tmp"]
    for name in left:
        (folder.checkpoints_path / name).mkdir(parents=True)
    (folder.path / "summary.json.1234.draft").write_text("{")
    (folder.path / "config.json.draft").symlink_to(folder.config_path)
    folder.open_to_train().release()
    assert list(folder.checkpoints_path.iterdir()) == []
    assert sorted(path.name for path in folder.path.iterdir()) == ["checkpoints", "config.json", "run.lock"]


def test_a_changed_configuration_is_refused(tmp_path: Path):
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment()).release()
    folder.config_path.write_text(folder.config_path.read_text().replace('"seed": 0', '"seed": 1'))
    for refused in (
        lambda: train(tiny_experiment(seed=1), folder.path, resume=True),
        lambda: load_learner(folder.path, "best"),
        lambda: export_learner(folder.path, tmp_path / "learner.npz"),
    ):
        with pytest.raises(ValueError, match=r"config\.json was changed after the run's start"):
            refused()


def test_a_changed_name_in_the_configuration_is_refused_with_the_file(tmp_path: Path):
    """Even that of the checksum."""
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment()).release()
    folder.config_path.write_text(folder.config_path.read_text().replace('"sha256"', '"sha25v"'))
    with pytest.raises(ValueError, match=rf"^{folder.config_path}: .*sha25v"):
        load_learner(folder.path, "best")


def test_a_missing_start_is_noticed(tmp_path: Path):
    """Without it the run would silently begin with new parameters."""
    source = tmp_path / "learner.npz"
    write_learner(source, {}, {"which": "last", "env_steps": [0]})
    folder = RunFolder.unused(tmp_path / "run")
    folder.create(tiny_experiment(), source).release()
    folder.start_path.unlink()
    with pytest.raises(ValueError, match=r"There is no file .*start\.npz"):
        train(tiny_experiment(), folder.path, resume=True)


def test_a_damaged_last_checkpoint_is_passed_over_by_all_readers(whole_run: Path, tmp_path: Path, capsys: Any):
    folder = Path(shutil.copytree(whole_run, tmp_path / "run"))
    before, last = iterations(folder / "checkpoints")
    for name in ("learner", "best_learner"):
        (path,) = (folder / "checkpoints" / str(last) / name / "d").iterdir()
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 16
        path.write_bytes(data)
    for which in ("best", "last"):
        messages: list[str] = []
        load_learner(folder, which, message=messages.append)
        assert len(messages) == 1
        assert f"iteration {last} is damaged" in messages[0]
    export_learner(folder, tmp_path / "last.npz", "last")
    assert read_header(tmp_path / "last.npz")["iteration"] == [before, before]
    error = capsys.readouterr().err
    assert error.startswith("spo: The checkpoint of iteration")
    assert error.count("\n") == 1


def test_runs_are_listed(whole_run: Path, tmp_path: Path):
    RunFolder.unused(tmp_path / "begun").create(tiny_experiment(seed=7))
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text("[]")
    (begun,) = map(load_run, find_runs(tmp_path))
    assert (begun.config["seed"], begun.env_steps, begun.finished) == (7, 0, False)
    (finished,) = [load_run(folder) for folder in find_runs(whole_run.parent) if folder == whole_run]
    assert finished.finished
    assert finished.env_steps == 12 * ENV_STEPS_PER_ITERATION
    assert finished.summary is not None
    assert finished.summary["iterations"] == 12


def test_a_learner_is_loaded(whole_run: Path):
    experiment, learner = load_learner(whole_run, "last")
    assert experiment == tiny_experiment()
    assert_same_bits(learner, last_state(whole_run).train_state.learner)
    with pytest.raises(ValueError, match="'best' or 'last'"):
        load_learner(whole_run, "first")  # type: ignore[arg-type]


def test_the_resume_command_quotes_the_path(tmp_path: Path):
    assert RunFolder(tmp_path / "my runs" / "one").resume_command.endswith("/my runs/one'")
    assert RunFolder(Path("/runs/one")).resume_command == "spo train --resume /runs/one"
