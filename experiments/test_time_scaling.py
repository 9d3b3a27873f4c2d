"""Claim 4: at test time, SPO's search solves more than AlphaZero's with the same network and the same time.

The paper takes one checkpoint and increases the budget of both searches: particles times horizon, or simulations. The
cubes have ten scrambles. It plots the share of 1 280 episodes solved over the seconds of an actor step. AlphaZero
scales worse than SPO with horizons 4 and 8. With horizon 2, SPO stops improving early. At 0.1 s per step, SPO has four
times the budget of AlphaZero.

Here both searches are timed in one process, by the episodes that are counted. A step is that of the whole batch, whose
size is reported. AlphaZero is MuZero's search. Actions are drawn from the result of the search, as in training,
without noise at the root. Some budgets are also played with the most likely action ("greedy"), for the details. If the
episodes of a budget take too long, fewer of them are played, in whole batches. A budget is left out if a single batch
would take too long. `SCALES` contains the limits.

The share solved at a given time is interpolated linearly in log time. Beyond the end of a curve it is that of its last
point. Held if SPO with horizons 4 and 8 solves more than AlphaZero at the compared time, by the 95 % interval of the
difference. Not held if SPO with one of them solves less. The compared time is 0.1 s at the paper scale. On a CPU it is
the time of AlphaZero's middle budget.

The part "equal budget" has the same rule at equal budgets instead: at the largest budget that both have played.
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from _claims import Claim, Finding, Setup, decide_by_intervals, main
from _trained import Trained, compile_all, cube_experiment, trained_run
from matplotlib.figure import Figure

from spo import environments, presets
from spo.acting import run_episodes
from spo.algorithms import alphazero, expert_iteration, spo
from spo.algorithms.base import Algorithm
from spo.reports import figures
from spo.reports.stats import Curve, Estimate, share_interval
from spo.types import Action, Array, Environment, PRNGKey, State, TimeStep

CLAIM = Claim(
    4,
    "test_time_scaling",
    "More from the same time at test time",
    "With the same network and the same time per step, SPO's search solves more cubes than AlphaZero's.",
    dict.fromkeys(("", "equal budget"), ("smoke", "cpu", "paper")),
)


class Scale(NamedTuple):
    """Sizes and limits of the experiment."""

    scrambles: int
    horizons: tuple[int, ...]
    spo_budgets: tuple[int, ...]
    alphazero_budgets: tuple[int, ...]
    greedy_budgets: tuple[int, ...]  # of AlphaZero, and of SPO with horizon 4
    episodes: int
    batch: int
    point_seconds: float  # no new batch of a budget starts after this time
    batch_seconds: float  # a budget is left out if its batch is expected to take longer
    compared_seconds: float | None  # per step; None: the time of AlphaZero's middle budget


SCALES = {
    "smoke": Scale(3, (4,), (8, 32), (4, 8), (), 32, 16, 5.0, 5.0, None),
    "cpu": Scale(6, (2, 4, 8), (16, 64, 256, 1024), (16, 32, 64, 128, 256), (16, 64, 256), 512, 64, 20.0, 30.0, None),
    "paper": Scale(
        10,
        (2, 4, 8),
        (16, 64, 256, 1024, 4096),
        (16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
        (16, 64, 256),
        episodes=1280,
        # All in one batch: a tree search waits for its deepest path, so a tenth of them would take as long.
        batch=1280,
        point_seconds=100.0,
        batch_seconds=100.0,
        compared_seconds=0.1,
    ),
}


class Point(NamedTuple):
    """Result of one search with one budget."""

    search: str
    budget: int
    seconds_per_step: float  # of the whole batch, median over batches
    solved: float
    low: float
    high: float
    episodes: int


def find(setup: Setup) -> list[Finding]:
    """Plays and times both searches with every budget, from one network."""
    scale = SCALES[setup.scale]
    experiment, trained = trained_run(setup, "cube", cube_experiment(setup.scale))
    task = environments.make(experiment.task, **(experiment.task_options | {"eval_scrambles": scale.scrambles}))
    searches = make_searches(trained._replace(setting=trained.setting._replace(task=task)), scale)
    curves = play_all(searches, task.evaluation, trained, scale)
    middle = curves["AlphaZero"][len(curves["AlphaZero"]) // 2]
    at = scale.compared_seconds or middle.seconds_per_step
    differences = {name: difference_at(at, curves[name], curves[rival(name)]) for name in curves if name != rival(name)}
    judged = {f"SPO, h = {horizon}": differences[f"SPO, h = {horizon}"] for horizon in scale.horizons if horizon > 2}
    closest = min(judged, key=lambda name: judged[name].value)
    budgets = {name: budget_at(at, curve) for name, curve in curves.items()}
    solved = {name: float(solved_at(np.log(at), curve, [p.solved for p in curve])) for name, curve in curves.items()}
    reached = "; ".join(f"{name}: budget {budgets[name]}, {solved[name]:.1%} solved" for name in curves)
    equal_time = Finding(
        verdict=decide_by_intervals(judged.values()),
        sentence=f"At {at:.3g} s per step of {scale.batch} episodes with {scale.scrambles} scrambles: {reached}.",
        number=differences[closest].value,
        number_name=f"share solved, {closest}, minus AlphaZero's in the same time",
        interval=(differences[closest].low, differences[closest].high),
        details={
            "network": trained.words,
            "temperature": trained.temperature,
            "batch": scale.batch,
            "seconds per step compared at": at,
            "budget there": budgets,
            "share solved there": solved,
            "minus AlphaZero's": differences,
            "points": [point._asdict() for curve in curves.values() for point in curve],
            "left out": {name: sorted(set(searches[name]) - {p.budget for p in curves[name]}) for name in searches},
        },
        figure=draw(curves, at, scale),
    )
    return [equal_time, find_equal_budget(curves, [horizon for horizon in scale.horizons if horizon > 2])]


def find_equal_budget(curves: dict[str, list[Point]], horizons: Sequence[int]) -> Finding:
    """Compares the share solved at the largest budget that SPO and AlphaZero have both played."""
    trees = {point.budget: point for point in curves["AlphaZero"]}
    differences = {}
    for horizon in horizons:
        common = [point for point in curves[f"SPO, h = {horizon}"] if point.budget in trees]
        differences[horizon] = {
            point.budget: difference_at(point.seconds_per_step, [point], [trees[point.budget]]) for point in common
        }
    largest = {horizon: max(found) for horizon, found in differences.items()}
    judged = {horizon: found[largest[horizon]] for horizon, found in differences.items()}
    closest = min(judged, key=lambda horizon: judged[horizon].value)
    words = ", ".join(f"h = {horizon}: {found.value:+.1%} at {largest[horizon]}" for horizon, found in judged.items())
    return Finding(
        verdict=decide_by_intervals(judged.values()),
        sentence=f"Share solved by SPO minus AlphaZero's at the same budget: {words}.",
        part="equal budget",
        number=judged[closest].value,
        number_name=f"share solved, h = {closest}, minus AlphaZero's at the same budget",
        interval=(judged[closest].low, judged[closest].high),
        details={"differences": {f"h = {horizon}": found for horizon, found in differences.items()}},
    )


# --- Playing ----------------------------------------------------------------------------------------------------------
def make_searches(trained: Trained, scale: Scale) -> dict[str, dict[int, Algorithm]]:
    """Returns name -> budget -> algorithm. All have the same task and the same network."""
    setting = trained.setting

    def by_particles(budget: int, horizon: int) -> Algorithm:
        sizes: dict[str, Any] = {"num_particles": budget // horizon, "horizon": horizon, "unroll": 1}
        search = dataclasses.replace(trained.config.search, **sizes, **presets.PAPER_INFERENCE)
        return spo.make_spo(setting, dataclasses.replace(trained.config, search=search))

    def by_tree(budget: int) -> Algorithm:
        config = alphazero.AlphaZeroConfig(num_simulations=budget, gamma=trained.config.gamma)
        return alphazero.make_alphazero(setting, config)

    searches = {
        f"SPO, h = {horizon}": {budget: by_particles(budget, horizon) for budget in scale.spo_budgets}
        for horizon in scale.horizons
    }
    searches["AlphaZero"] = {budget: by_tree(budget) for budget in scale.alphazero_budgets}
    if scale.greedy_budgets:
        searches["SPO, h = 4, greedy"] = {budget: by_particles(budget, 4) for budget in scale.greedy_budgets}
        searches["AlphaZero, greedy"] = {budget: by_tree(budget) for budget in scale.greedy_budgets}
    return searches


def is_greedy(name: str) -> bool:
    return name.endswith("greedy")


def rival(name: str) -> str:
    """Returns the tree search that a search is compared with: the one that chooses actions in the same way."""
    return "AlphaZero, greedy" if is_greedy(name) else "AlphaZero"


def play_all(
    searches: dict[str, dict[int, Algorithm]], environment: Environment, trained: Trained, scale: Scale
) -> dict[str, list[Point]]:
    """Returns all curves. All programs are compiled before the first is timed."""
    key = jax.random.key(4)
    programs = {
        (name, budget): (
            player(algorithm, environment, scale.batch, is_greedy(name)),
            (learner_for(name, trained), key),
        )
        for name, budgets in searches.items()
        for budget, algorithm in budgets.items()
    }
    print(f"{len(programs)} programs to compile", flush=True)
    compiled = compile_all(programs)
    first = next(iter(programs))
    jax.block_until_ready(compiled[first](*programs[first][1]))  # the first call also starts the device
    curves: dict[str, list[Point]] = {name: [] for name in searches}
    for name, budgets in searches.items():
        batch_seconds = 0.0
        for budget, after in itertools.pairwise([0, *sorted(budgets)]):
            # The time grows at least linearly with the budget.
            if budget and batch_seconds * after / budget > scale.batch_seconds:
                break
            arguments = (learner_for(name, trained), key)
            point, batch_seconds = play(name, after, compiled[name, after], arguments, scale)
            curves[name].append(point)
            print(f"  {name}, budget {after}: {point.solved:.1%} in {point.seconds_per_step:.3g} s a step", flush=True)
    return curves


def learner_for(name: str, trained: Trained) -> Any:
    """Returns the learner of a search. AlphaZero has the same parameters, but no temperature."""
    return expert_iteration.Learner(trained.learner.params, ()) if name == rival(name) else trained.learner


def player(algorithm: Algorithm, environment: Environment, batch: int, greedy: bool) -> Callable[..., Any]:
    """Returns a function (learner, key) -> number of episodes solved, length of the longest episode."""

    def play(learner: Any, key: PRNGKey) -> tuple[Array, Array]:
        def act(key: PRNGKey, state: State, timestep: TimeStep) -> Action:
            return algorithm.act(learner, key, state, timestep, use_search=True, greedy=greedy)

        episodes = run_episodes(environment, act, key, batch)
        return jnp.sum(episodes.metrics["solved"]), jnp.max(episodes.lengths)

    return play


def play(
    name: str, budget: int, program: Callable[..., Any], arguments: tuple[Any, PRNGKey], scale: Scale
) -> tuple[Point, float]:
    """Plays batches until there are enough episodes or the time is over.

    Returns:
        The point of the curve, and the seconds per batch.
    """
    learner, key = arguments
    start = time.perf_counter()
    num_solved, per_step, seconds = 0.0, [], []
    for batch in range(scale.episodes // scale.batch):
        # The first use of `fold_in` is compiled. That took sixty times as long as the fastest search.
        batch_key = jax.block_until_ready(jax.random.fold_in(key, batch))
        (solved, num_steps), batch_seconds = timed(lambda batch_key=batch_key: program(learner, batch_key))
        seconds.append(batch_seconds)
        per_step.append(batch_seconds / int(num_steps))
        num_solved += float(solved)
        if time.perf_counter() - start > scale.point_seconds:
            break
    count = scale.batch * len(seconds)
    share = share_interval(num_solved / count, count)
    return Point(name, budget, statistics.median(per_step), *share, count), statistics.median(seconds)


def timed(program: Callable[[], Any], repeats: int = 3, long_enough: float = 1.0) -> tuple[Any, float]:
    """Returns the result of a program and its seconds: a short one runs three times, and the median counts.

    The first run of a program may also load it onto the device, and a single short time is no measurement.
    """
    seconds: list[float] = []
    while len(seconds) < repeats and max(seconds, default=0.0) < long_enough:
        began = time.perf_counter()
        result = jax.block_until_ready(program())
        seconds.append(time.perf_counter() - began)
    return result, statistics.median(seconds)


# --- Verdict ----------------------------------------------------------------------------------------------------------
def solved_at(log_seconds: float, curve: list[Point], shares: Any) -> np.ndarray:
    """Interpolates shares [..., points] of a curve at a time: linear in log time, constant outside."""
    # Times of small budgets are mostly overhead and may fall with the budget.
    times = np.maximum.accumulate([point.seconds_per_step for point in curve])
    position = np.interp(log_seconds, np.log(times), np.arange(len(times)))
    left, shares = int(position), np.asarray(shares)
    right = min(left + 1, len(times) - 1)
    return shares[..., left] + (position - left) * (shares[..., right] - shares[..., left])


def difference_at(seconds: float, curve: list[Point], baseline: list[Point]) -> Estimate:
    """Returns the difference of the shares solved at a time per step, with its interval.

    Each point's share is drawn from its posterior under Jeffreys' prior, which has a width at 0 and 1 too.
    """
    rng = np.random.default_rng(0)

    def draws(points: list[Point]) -> np.ndarray:
        counts = np.array([(point.solved * point.episodes, point.episodes) for point in points])
        return rng.beta(counts[:, 0] + 0.5, counts[:, 1] - counts[:, 0] + 0.5, (10_000, len(points)))

    at = np.log(seconds)
    spread = solved_at(at, curve, draws(curve)) - solved_at(at, baseline, draws(baseline))
    value = solved_at(at, curve, [p.solved for p in curve]) - solved_at(at, baseline, [p.solved for p in baseline])
    return Estimate(*(float(x) for x in (value, *np.percentile(spread, [2.5, 97.5]))))


def budget_at(seconds: float, curve: list[Point]) -> str:
    """Returns the budget that takes this time per step, interpolated linearly in both logarithms."""
    times = np.maximum.accumulate([point.seconds_per_step for point in curve])
    budgets = [point.budget for point in curve]
    if seconds > times[-1]:
        return f"over {budgets[-1]}"
    if seconds < times[0]:
        return f"under {budgets[0]}"
    return f"{np.exp(np.interp(np.log(seconds), np.log(times), np.log(budgets))):.0f}"


def draw(curves: dict[str, list[Point]], at: float, scale: Scale) -> Figure:
    """Draws the share solved over the seconds per step, one curve per search."""
    tree = figures.colours(["alphazero"])["alphazero"]
    others = iter(colour for colour in figures.PALETTE if colour != tree)
    palette = {name: tree if name == rival(name) else next(others) for name in curves if not is_greedy(name)}
    with figures.style():
        figure = figures.new_figure(6.4, 4.4)
        axes = figure.add_subplot()
        for name, points in curves.items():
            colour = palette[name.removesuffix(", greedy")]
            solved = Estimate(*np.array([(p.solved, p.low, p.high) for p in points]).T)
            curve = Curve(np.array([p.seconds_per_step for p in points]), solved)
            figures.draw_curve(axes, curve, colour, label=name, marker="o", ls="--" if is_greedy(name) else "-")
            axes.annotate(
                f"{points[-1].budget}",
                (points[-1].seconds_per_step, points[-1].solved),
                textcoords="offset points",
                xytext=(5, 0),
                va="center",
                fontsize=7.5,
                color=colour,
            )
        axes.axvline(at, color=figures.MUTED, lw=1, ls=(0, (3, 3)))
        axes.set(
            xscale="log",
            xlabel=f"seconds per step of {scale.batch} episodes",
            ylabel="episodes solved",
            title=f"Cubes with {scale.scrambles} scrambles; numbers are the largest budgets",
        )
        axes.yaxis.set_major_formatter(figures.PER_CENT)
        axes.set_ylim(*figures.SHARE_LIMITS)
        figure.legend(loc="outside lower center", ncols=3, handlelength=3)
    return figure


if __name__ == "__main__":
    main(CLAIM, find)
