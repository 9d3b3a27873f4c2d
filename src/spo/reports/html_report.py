"""The report of a comparison: one HTML file that loads nothing else.

Figures are inline SVG with the colours of the page, light or dark.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from spo.reports import figures
from spo.reports.comparison import Comparison, Result
from spo.reports.comparison_figures import FIGURES
from spo.reports.formatting import format_duration, format_estimate, format_metric
from spo.reports.judgement import Judgement
from spo.reports.runs import Run
from spo.reports.stats import Curve, Verdict, format_dominance, share_interval

#: The palette of `figures` on a dark page, in the same order.
_DARK_PALETTE = figures.extend_palette(
    ("#58A6E8", "#F0883E", "#2FC79A", "#E39AC2", "#F2C14E", "#A5D8FF", "#C9A77C", "#B28DFF"),
)

_STYLE = """
:root { color-scheme: light dark; --ink: #24292f; --muted: #6e7781; --grid: #d8dee4; --page: #ffffff; --panel: #f6f8fa;
  --link: #0969da; --good: #1a7f37; --open: #9a6700; %(light)s }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --muted: #8d96a0; --grid: #30363d; --page: #0d1117;
  --panel: #161b22; --link: #58a6ff; --good: #3fb950; --open: #d29922; %(dark)s } }
* { box-sizing: border-box }
html { -webkit-text-size-adjust: 100%% }
body { margin: 0 auto; padding: 3rem 1.25rem 5rem; max-width: 62rem; background: var(--page); color: var(--ink);
  font: 16px/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", sans-serif }
h1 { font-size: 2rem; line-height: 1.2; letter-spacing: -.02em; margin: 0 0 .25rem }
h2 { font-size: 1.25rem; letter-spacing: -.01em; margin: 3rem 0 .75rem; padding-top: 1.5rem;
  border-top: 1px solid var(--grid) }
p { max-width: 46rem } a { color: var(--link) }
.lead { color: var(--muted); margin: 0 0 1.5rem }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .875rem; margin: 0 0 1.5rem }
nav a { text-decoration: none }
.verdicts { display: grid; gap: .75rem; padding: 0; margin: 0; list-style: none }
.verdicts li { background: var(--panel); border-left: 4px solid var(--open); border-radius: 0 8px 8px 0;
  padding: .75rem 1rem }
.verdicts li.decided { border-color: var(--good) }
.verdicts strong { display: block } .verdicts small { color: var(--muted); font-size: .875rem }
.scroll { overflow-x: auto; margin: 1rem 0 }
table { border-collapse: collapse; width: 100%%; font-size: .875rem; font-variant-numeric: tabular-nums }
th, td { padding: .5rem .75rem; text-align: left; border-bottom: 1px solid var(--grid); vertical-align: top }
th { font-weight: 600; white-space: nowrap } tbody tr:hover { background: var(--panel) }
td small { display: block; color: var(--muted); white-space: nowrap } td.number { white-space: nowrap }
.dot { display: inline-block; width: .7em; height: .7em; border-radius: 50%%; margin-right: .45em }
figure { margin: .5rem 0 1.5rem } figure svg { display: block; width: 100%%; height: auto;
  max-width: calc(var(--width) * 1.28px) }
figure svg text { font-family: inherit !important }
figcaption { color: var(--muted); font-size: .875rem; max-width: 46rem; margin-top: .5rem }
code { font: .8125rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere }
details { margin: .5rem 0 } summary { cursor: pointer } pre { background: var(--panel); border-radius: 8px;
  padding: .75rem 1rem; overflow-x: auto; white-space: pre-wrap; margin: .5rem 0 }
dt { font-weight: 600; margin-top: .75rem } dd { margin: 0; max-width: 46rem; color: var(--ink) }
.notes li { margin: .25rem 0 }
@media (max-width: 40rem) { body { padding-top: 1.5rem } h1 { font-size: 1.5rem }
  figure { overflow-x: auto } figure svg { min-width: calc(var(--width) * .76px) } }
@media print { nav { display: none } h2 { break-after: avoid } figure, tr { break-inside: avoid } }
"""

_CAPTIONS = {
    "learning_curves": "Evaluations during training: the interquartile mean over seeds and its 95 % interval. A single "
    "seed has no interval.",
    "final_scores": "Final evaluation of every run, the interquartile mean (tick) and its 95 % interval (bar). A ring "
    "is a run that is not finished.",
    "aggregate_metrics": "Normalised scores over all tasks and runs, with 95 % stratified bootstrap intervals.",
    "probability_of_improvement": "Probability that a run of the first group scores more than a run of the second on a "
    "random task, with its 95 % interval. Grey: undecided, because the interval contains 0.5 or p is over 0.05.",
    "performance_profiles": "Share of runs, over all tasks, whose normalised score is over τ, with pointwise 95 % "
    "intervals. A curve that is above another one everywhere dominates it.",
    "sample_efficiency": "Interquartile mean of normalised scores over all tasks and runs during training.",
    "training_time": "The same evaluations over the time of training, without compilation and evaluations. Seeds of "
    "one run share its time. Compare times on the same hardware only.",
}

_DEFINITIONS = {
    "Score": "Mean over the episodes of a run's final evaluation, with the parameters of the best evaluation during "
    "training. It is the share of solved episodes if the task has one, else the return.",
    "Normalised score": "(score - min) / (max - min). Min and max are the lowest and the highest score of any "
    "evaluation of the task in this comparison, evaluations during training included.",
    "IQM": "Interquartile mean: the mean of the middle half of all runs of all tasks. Outliers do not change it, and "
    "it uses more of the data than a median.",
    "Mean, median": "Mean and median over tasks of each task's mean over runs.",
    "Optimality gap": "1 minus the mean of normalised scores: the distance from the best score in this comparison. "
    "Lower is better.",
    "Probability of improvement": "P(X > Y): the share of pairs of runs in which X scores more than Y, averaged over "
    "tasks. Ties count as half (Mann and Whitney's U).",
    "95 % interval": "Stratified bootstrap, percentile method: runs are resampled with replacement within each task. "
    "It is about other seeds on the same tasks, not about other tasks. With few seeds it is too narrow.",
    "p": "Two-sided permutation test: the chance that two equal algorithms have a P(X > Y) at least as far from 0.5. "
    "Runs change sides within their task.",
    "Better": "The interval of P(X > Y) excludes 0.5, which is the paper's rule, and p is at most 0.05. The second "
    "condition is needed because the interval of few runs is too narrow. Meaningful: the upper bound is over 0.75. "
    "Everything else is undecided at this scale. There is no correction for the number of pairs.",
    "Runs that would decide": "The interval shrinks like 1/√n. With half-width h and effect d = |P - 0.5| from n runs, "
    "about n (h/d)² runs exclude 0.5, if the effect does not change. The number also brings p to 0.05.",
    "Dominance": "One performance profile is at or above the other at every τ, and above it somewhere. It is certain "
    "if this holds in 97.5 % of bootstrap samples.",
}


def write_report(
    path: Path,
    comparison: Comparison,
    judgement: Judgement,
    drawn: Mapping[str, Figure],
    *,
    commands: Mapping[Path, str],
    title: str,
) -> None:
    """Writes the report.

    Args:
        path: the file.
        comparison: the runs.
        judgement: their statistics.
        drawn: figures by their names in `comparison_figures.FIGURES`.
        commands: run folder -> command that repeats the run. A run without one shows its settings.
        title: title of the page.
    """
    sections = {
        "verdict": ("Verdict", _verdict_section(comparison, judgement)),
        "scores": ("Scores", _scores_section(comparison, judgement)),
        **{
            name: (heading, _figure(name, drawn[name], interpolated=_interpolated(name, judgement)))
            for name, (heading, _) in FIGURES.items()
            if name in drawn
        },
        "runs": ("Runs", _runs_section(comparison, commands)),
        "definitions": ("Definitions", _definitions()),
    }
    links = "".join(f'<a href="#{name}">{escape(heading)}</a>' for name, (heading, _) in sections.items())
    body = "".join(f'<h2 id="{name}">{escape(heading)}</h2>{content}' for name, (heading, content) in sections.items())
    body = body.replace(" %", "\N{NO-BREAK SPACE}%")
    palette = {
        "light": " ".join(f"--series-{i}: {colour};" for i, colour in enumerate(figures.PALETTE)),
        "dark": " ".join(f"--series-{i}: {colour};" for i, colour in enumerate(_DARK_PALETTE)),
    }
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE % palette}</style></head><body>"
        f'<header><h1>{escape(title)}</h1><p class="lead">{escape(_lead(comparison))}</p><nav>{links}</nav></header>'
        f"<main>{body}</main></body></html>\n"
    )
    path.write_text(page, "utf-8")


def _inline_svg(svg: str, prefix: str) -> str:
    """Turns an SVG file into an element of a page: identifiers get a prefix, colours become variables of the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg[^>]*?viewBox="([^"]*)"[^>]*>', _svg_tag, svg, count=1)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(xlink:)?href="#([^"]+)"', rf'href="#{prefix}-\2"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    variables = {figures.INK: "--ink", figures.MUTED: "--muted", figures.GRID: "--grid"}
    variables |= {colour: f"--series-{index}" for index, colour in enumerate(figures.PALETTE)}
    for colour, variable in variables.items():
        svg = re.sub(colour, f"var({variable})", svg, flags=re.IGNORECASE)
    return svg


def _svg_tag(tag: re.Match[str]) -> str:
    """Returns the opening tag. The style sheet scales figures by their width, so text has one size in all of them."""
    view_box = tag[1]
    return f'<svg viewBox="{view_box}" style="--width: {view_box.split()[2]}" role="img">'


def _lead(comparison: Comparison) -> str:
    folders = {result.run.folder for result in comparison.results}
    return (
        f"{_count(len(comparison.groups), 'group')} by {comparison.by}, {_count(len(comparison.tasks), 'task')}, "
        f"{_count(len(comparison.results), 'seed')} in {_count(len(folders), 'run')}."
    )


def _verdict_section(comparison: Comparison, judgement: Judgement) -> str:
    if judgement.verdicts:
        num_first = len(comparison.groups) - 1  # pairs with the first group of the ranking come first
        shown = judgement.verdicts[:num_first] if len(judgement.verdicts) > 6 else judgement.verdicts
        content = _verdict_list(shown)
        if rest := judgement.verdicts[len(shown) :]:
            content += f"<details><summary>The other {len(rest)} pairs</summary>{_verdict_list(rest)}</details>"
    else:
        content = f"<p>There is one group, {escape(comparison.groups[0])}: nothing to compare it with.</p>"
    if len(judgement.tasks) < len(comparison.tasks):
        content += f"<p>Aggregates are over the tasks that all groups share: {escape(', '.join(judgement.tasks))}.</p>"
    if notes := (*comparison.notes, *judgement.notes):
        items = "".join(f"<li>{escape(note)}</li>" for note in notes)
        content += f'<p><strong>Limitations</strong></p><ul class="notes">{items}</ul>'
    return content


def _verdict_list(verdicts: Sequence[Verdict]) -> str:
    return f'<ul class="verdicts">{"".join(map(_verdict_item, verdicts))}</ul>'


def _verdict_item(verdict: Verdict) -> str:
    headline, _, rest = verdict.sentence.partition(". ")
    return (
        f'<li class="{"open" if verdict.better is None else "decided"}"><strong>{escape(headline)}.</strong>'
        f"<small>{escape(rest)} {escape(format_dominance(verdict))}</small></li>"
    )


def _scores_section(comparison: Comparison, judgement: Judgement) -> str:
    def cell(group: str, task: str) -> str:
        if (group, task) not in judgement.finals:
            return "<td>not run</td>"
        results, metric = comparison.results_of(group, task), comparison.metrics[task]
        estimate = judgement.finals[group, task]
        words = format_estimate(metric, estimate)
        value, _, interval = words.partition(" (")
        below = interval.rstrip(")") or "no interval"
        seeds = _count(len(results), "seed")
        unfinished = sum(not result.finished for result in results)
        seeds += f", {unfinished} unfinished" if unfinished else ""
        return f'<td class="number">{escape(value)}<small>{escape(below)}</small><small>{seeds}</small></td>'

    def aggregate(group: str, name: str) -> str:
        value, _, interval = format_estimate(name, judgement.aggregates[group][name]).partition(" (")
        return f'<td class="number">{value}<small>{interval.rstrip(")") or "no interval"}</small></td>'

    names = {group: f"<th>{_dot(comparison, group)}{escape(group)}</th>" for group in judgement.ranking}
    metrics = list(next(iter(judgement.aggregates.values())))
    return (
        "<p>Interquartile mean over seeds of the final evaluation, with its 95 % interval between seeds.</p>"
        + _table(
            [comparison.by, *comparison.tasks],
            (names[group] + "".join(cell(group, task) for task in comparison.tasks) for group in judgement.ranking),
        )
        + "<p>Normalised scores over all tasks that the groups share.</p>"
        + _table(
            [comparison.by, *metrics],
            (names[group] + "".join(aggregate(group, name) for name in metrics) for group in judgement.ranking),
        )
    )


def _runs_section(comparison: Comparison, commands: Mapping[Path, str]) -> str:
    rows = []
    for run in {id(result.run): result.run for result in comparison.results}.values():
        results = [result for result in comparison.results if result.run is run]
        rows.append(_run_row(comparison, run, results, commands.get(run.folder)))
    return (
        "<p>Every run with its result per seed, its hardware and the command that repeats it. Brackets contain the "
        "95 % interval between episodes (Wilson's), for shares of solved episodes.</p>"
        + _table(["run", "task", "steps", "result per seed", "time", "hardware"], rows)
    )


def _run_row(comparison: Comparison, run: Run, results: Sequence[Result], command: str | None) -> str:
    first = results[0]
    metric = comparison.metrics[first.task]
    scores = "<br>".join(_seed_score(metric, result) for result in results)
    start = run.starts[-1] if run.starts else {}
    packages = start.get("packages", {})
    facts = [
        f"Python {start['python']}" if "python" in start else "",
        f"jax {packages['jax']}" if "jax" in packages else "",
        f"spo {run.config['spo_version']}",
        f"commit {start['git_commit'][:12]}" if start.get("git_commit") else "",
        f"{len(run.starts)} starts" if len(run.starts) > 1 else "",
    ]
    hardware = f"{start.get('num_devices', 1)} × {start['device']}" if "device" in start else "not recorded"
    last = max([*run.finals.values(), *(records[-1] for records in run.evaluations.values())], key=_wall_seconds)
    if command is None:
        settings = "\n".join(f"{name} = {value}" for name, value in sorted(run.config.items()))
        repeat = f"<details><summary>settings</summary><pre><code>{escape(settings)}</code></pre></details>"
    else:
        repeat = f"<details><summary>command</summary><pre><code>{escape(command)}</code></pre></details>"
    state = "" if all(result.finished for result in results) else "<small>not finished</small>"
    return (
        f"<td>{_dot(comparison, first.group)}{escape(first.group)}{repeat}<small>{escape(str(run.folder))}</small></td>"
        f'<td>{escape(first.task)}</td><td class="number">{last["env_steps"]:,}{state}</td>'
        f'<td class="number">{scores}</td><td class="number">{format_duration(_wall_seconds(last))}</td>'
        f"<td>{escape(hardware)}<small>{escape(', '.join(filter(None, facts[:2])))}</small>"
        f"<small>{escape(', '.join(filter(None, facts[2:])))}</small></td>"
    )


def _seed_score(metric: str, result: Result) -> str:
    words = format_metric(metric, result.score)
    if metric == "episode/solved":
        interval = share_interval(result.score, result.episodes)
        words += f" ({format_metric(metric, interval.low)} to {format_metric(metric, interval.high)})"
    return f"{words}<small>of {result.episodes:,} episodes</small>"


def _wall_seconds(record: Mapping[str, Mapping[str, float]]) -> float:
    return record["time"]["wall_seconds"]


def _figure(name: str, figure: Figure, *, interpolated: bool) -> str:
    caption = _CAPTIONS[name]
    if interpolated:
        caption += (
            " Runs were evaluated at different points. Between two points a run is a straight line. A curve ends with "
            "the shortest run of its group."
        )
    return (
        f"<figure>{_inline_svg(figures.to_svg(figure, name), name)}<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _interpolated(name: str, judgement: Judgement) -> bool:
    curves: dict[str, Mapping[Any, Curve]] = {
        "learning_curves": judgement.learning_curves,
        "sample_efficiency": judgement.sample_efficiency,
        "training_time": judgement.time_curves,
    }
    return any(curve.interpolated for curve in curves.get(name, {}).values())


def _definitions() -> str:
    return (
        "<dl>"
        + "".join(f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>" for word, meaning in _DEFINITIONS.items())
        + "</dl><p>The methods follow Agarwal et al. (2021), “Deep Reinforcement Learning at the Edge of the "
        "Statistical Precipice”.</p>"
    )


def _dot(comparison: Comparison, group: str) -> str:
    index = figures.PALETTE.index(figures.colours(comparison.groups)[group])
    return f'<span class="dot" style="background: var(--series-{index})"></span>'


def _table(header: Sequence[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


__all__ = ["write_report"]
