"""Errors of the parser of the command line: one sentence each."""

import pytest

pytest.importorskip("tyro")
pytest.importorskip("flax")

from spo.cli import main
from spo.cli.parsing import sentence

REFUSED = {
    "a word for a count": (
        ("train", "--task", "tiny/chain", "--task.length", "abc"),
        "--task.length must be a whole number, got 'abc'. `spo train --help` lists the options.",
    ),
    "a word for a number": (
        ("train", "--learning-rate", "fast"),
        "--learning-rate must be a number, got 'fast'. `spo train --help` lists the options.",
    ),
    "an unknown choice": (
        ("train", "--old-policy", "best"),
        "--old-policy must be one of target, rollout, got 'best'. `spo train --help` lists the options.",
    ),
    "an unknown option": (
        ("train", "--lerning-rate", "3"),
        "Unrecognized options: --lerning-rate. Did you mean --learning-rate or --dual-learning-rate? "
        "`spo train --help` lists the options.",
    ),
    "a word for a count or nothing": (
        ("train", "--network.depth", "deep"),
        "--network.depth must be a whole number or None, got 'deep'. `spo train --help` lists the options.",
    ),
    "names of other libraries": (
        ("train", "--env", "tiny/chain", "--lr=1e-3", "--total_timesteps", "1e3"),
        "Unrecognized options: --env, --lr, --total_timesteps. Did you mean --task or --learning-rate or --steps? "
        "`spo train --help` lists the options.",
    ),
    "a negative number": (
        ("train", "--zz", "-1"),
        "Unrecognized options: --zz. `spo train --help` lists the options.",
    ),
    "an environment as a preset": (
        ("train", "tiny/chain", "--steps", "1e3"),
        "tiny/chain is an environment and no preset: write `spo train --task tiny/chain`.",
    ),
    "an environment of a library as a preset": (
        ("train", "brax/ant"),
        "brax/ant is an environment and no preset: write `spo train --task brax/ant`.",
    ),
    "an option of another command": (
        ("runs", "--sortby", "task"),
        "Unrecognized options: --sortby. Did you mean --sort? `spo runs --help` lists the options.",
    ),
    "a word for a count of another command": (
        ("render", "run", "--episodes", "many"),
        "--episodes must be a whole number, got 'many'. `spo render --help` lists the options.",
    ),
    "no command": (
        ("trian",),
        "Unrecognized options: trian. There are: train, sweep, config, evaluate, render, inspect, runs, compare, "
        "export, envs, download. `spo --help` lists the options.",
    ),
    "no value": (("compare", "--by"), "--by needs a value. `spo compare --help` lists the options."),
    "no run": (
        ("render",),
        "spo render needs RUN. Folder of a run, or a file written by `spo export`. "
        "`spo render --help` lists the options.",
    ),
    "a nested setting": (("train", "--network.width", "0"), "network.width must be 1 or more, got 0."),
    "a setting of a nested list": (
        ("train", "--network.channels", "8", "0"),
        "network.channels contains a value that must be 1 or more, got (8, 0).",
    ),
    "a word in a nested list": (
        ("train", "--network.channels", "wide"),
        "--network.channels must be whole numbers or None, got 'wide'. `spo train --help` lists the options.",
    ),
    "a value for a switch": (
        ("train", "--evaluation.greedy", "yes"),
        "'yes' is no preset, and the option before it takes no value. `spo train --help` lists the presets and the "
        "options.",
    ),
    "a huge count": (
        ("train", "--batch-size", "9223372036854775807"),
        "batch_size must be at most 2147483647, got 9223372036854775807.",
    ),
    "too many steps": (("train", "--steps", "1e18"), "steps must be a number between 1 and 1e15, got 1e+18."),
    "a negative seed": (("train", "--seed", "-1"), "seed must lie between 0 and 4294967295, got -1."),
    "a seed of 33 bits": (("train", "--seed", "4294967296"), "seed must lie between 0 and 4294967295, got 4294967296."),
    "not a number, in a setting that is not used": (
        ("train", "--no-trust-region", "--kl-bound", "nan"),
        "kl_bound must be above 0, got nan.",
    ),
}


@pytest.mark.parametrize(("arguments", "words"), REFUSED.values(), ids=REFUSED)
def test_a_refused_command_line_is_one_sentence(capsys, monkeypatch, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(arguments)
    printed = capsys.readouterr()
    assert (end.value.code, printed.out, printed.err) == (2, "", f"spo: {words}\n")
    assert not list(tmp_path.iterdir())


def test_an_unknown_box_keeps_its_words():
    box = "╭─ Parsing error ─────╮\n│ Something is          │\n│ wrong                 │\n╰───────────────────────╯\n"
    assert sentence(box, "spo") == "Something is wrong."
    assert sentence(" Parsing error \n --------- \n Something is\n wrong \n", "spo") == "Something is wrong."
    assert sentence("\x1b[1m" + box, "spo") == "Something is wrong."
    assert sentence("", "spo") == "The command line can't be read."


def test_an_error_of_the_file_system_is_a_sentence(capsys):
    with pytest.raises(SystemExit) as end:
        main(["evaluate", "x" * 300])
    assert (end.value.code, "[Errno" in capsys.readouterr().err) == (2, False)


def test_escapes_and_line_ends_in_a_name_are_not_printed(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--task", "\x1b[31mcube\nnext"])
    printed = capsys.readouterr().err
    assert (end.value.code, printed.count("\n"), "\x1b" in printed) == (2, 1, False)
