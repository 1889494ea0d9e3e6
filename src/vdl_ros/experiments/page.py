"""Results of an experiment: table, graph, a page without a server; the table of a benchmark."""

import base64
import html
import itertools
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct

from vdl_ros.common.files import find_resource, json_lines, read_json, write_table, write_text
from vdl_ros.common.plain_yaml import read_yaml
from vdl_ros.common.schema import converted, matching
from vdl_ros.common.settings import build
from vdl_ros.experiments.results import (
    curve_of,
    draw_experiment,
    reproducing_command,
    runs_by_agent,
)
from vdl_ros.experiments.search import Outcome
from vdl_ros.experiments.spec import PARTS, ReferenceConfig, Spec
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.rl.plots.curve_plot import draw_curves

#: What an experiment came to; ``complete`` says whether all its trials have ended.
SUMMARY = 'experiment.json'
# Trials whose curves are drawn.
_DRAWN = 6
_BENCHMARK = ('environment', 'algorithm', 'best', 'trials', 'return by seed',
              'steps to the standard return', 'fitness')
_HEAD = '''<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
:root { color-scheme: light dark; --blue: #1f6feb; --grey: #57606a; --line: #d0d7de;
  --text: #1f2328; --back: #fff; --block: #f6f8fa }
@media (prefers-color-scheme: dark) { :root { --blue: #4493f8; --grey: #9198a1; --line: #3d444d;
  --text: #f0f6fc; --back: #0d1117; --block: #151b23 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--back);
  margin: 2rem auto; max-width: 66rem; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p.note, td.note { color: var(--grey) }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap } th:first-child, td:first-child, td.text { text-align: left }
tr.best { font-weight: 600 } img { max-width: 100%; height: auto; background: #fff }
pre { background: var(--block); padding: .6rem .8rem;
  overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere }
.bar { display: inline-block; height: .8rem; background: var(--blue); vertical-align: middle }
</style>'''


def references() -> dict[str, ReferenceConfig]:
    content = read_yaml(find_resource('config/reference_returns.yaml'))
    return {env_id: build(ReferenceConfig, row) for env_id, row in content.items()}


def reference_of(spec: Spec) -> ReferenceConfig | None:
    """Return the reference of a spec, or else of its environment; None if there is neither."""
    return spec.reference or references().get(spec.env_id)


class Best(Struct):
    """The best trial: its number and the values of what was searched."""

    trial: Annotated[int, Meta(ge=0)]
    values: dict[str, bool | int | float | str] = {}


class Summary(Struct):
    """What :func:`deliver_experiment` wrote, as far as it is read."""

    spec: str = ''
    complete: bool = False
    trials: dict[str, int] = {}
    best: Best | None = None


class Session(Struct):
    """The run of a session in the folder of its trial."""

    folder: Annotated[str, matching(r'session-\d+(/[a-z][a-z0-9_]{0,60})?', 'a session')]
    final_return: float
    agent_steps: int | None = None
    speed: float = 0.0


class Trial(Struct):
    """What ``deliver_trial`` wrote, as far as it is read."""

    sessions: tuple[Session, ...] = ()
    reference: dict[str, float] | None = None
    fitness: float | None = None


def read_summary(folder: Path) -> Summary:
    """Return the summary of an experiment, empty without one; ValueError: it is damaged."""
    path = folder / SUMMARY
    return converted(read_json(path), Summary, str(path), ValueError)


def read_trial(folder: Path) -> Trial:
    """Return the result of a trial, without sessions if there is none; ValueError: damaged."""
    path = folder / 'trial_data.json'
    return converted(read_json(path), Trial, str(path), ValueError)


def deliver_experiment(
    runner: TrialRunner, outcomes: Sequence[Outcome], importance: Mapping[str, float],
    mode: str, *, complete: bool,
) -> list[Outcome]:
    """Write ``experiment_df.csv``, ``experiment_graph.png``, ``index.html``, ``experiment.json``.

    Return the outcomes, the best first, and those that are not complete at the end. ``importance``
    is the share of each setting in the spread of results, and may be empty.
    """
    folder, spec = runner.folder, runner.spec
    ranked = sorted(outcomes, key=lambda each: (
        each.value is None, -(each.value or 0.0), each.number))
    spaces = spec.search.spaces if spec.search and mode != 'train' else {}
    names = list(spaces)
    scored = ('fitness', *PARTS, 'final_return')
    write_table(folder / 'experiment_df.csv', ('trial', 'state', *scored, *names), *((
        each.number, each.state, *(each.record.get(part, '') for part in scored),
        *(each.values.get(name, '') for name in names)) for each in ranked))
    best = ranked[0] if ranked and ranked[0].value is not None else None
    graph = folder / 'experiment_graph.png'
    # What is the same in all trials explains nothing.
    shown_names = [name for name in names if len({
        each.values.get(name) for each in ranked if each.value is not None}) > 1]
    if shown_names and best:
        draw_experiment(ranked, shown_names, graph, [
            name for name in shown_names if spaces[name].log])
    counts = {state: sum(each.state == state for each in ranked)
              for state in ('complete', 'pruned', 'failed')}
    shown = ', '.join(f'{count} {state}' for state, count in counts.items() if count) or 'none'
    body = [
        f'<h1>{_text(spec.name)}</h1>', f'<p>{_text(spec.description)}</p>',
        f'<p>{_text(spec.subject)}; {mode}, {spec.meta.sessions} '
        f'session{"s" * (spec.meta.sessions > 1)} a trial; trials: {shown}'
        f'{"" if complete else "; not complete yet"}.</p>',
        *_parts(runner, ranked, shown_names, importance, graph)]
    write_text(folder / 'index.html', '\n'.join([
        _HEAD, f'<title>{_text(spec.name)}</title>', '</head>', '<body>', *body, '</body>',
        '</html>', '']))
    write_text(folder / SUMMARY, json.dumps({
        'spec': spec.name, 'mode': mode, 'complete': complete, 'trials': counts,
        'best': best and {'trial': best.number, 'values': best.values, **best.record},
        'importance': importance}, indent=1) + '\n')
    return ranked


def _parts(
    runner: TrialRunner, ranked: Sequence[Outcome], names: Sequence[str],
    importance: Mapping[str, float], graph: Path,
) -> Iterable[str]:
    reference = reference_of(runner.spec)
    if reference is None:
        yield _note('There is no reference of this environment, so trials are ranked by the mean '
                    'return of their last 100 episodes.')
    else:
        yield _note(f'Fitness: strength is 0 at the return {reference.random_return:g} of random '
                    f'actions and 1 at {reference.standard_return:g}; speed is 1 if that takes '
                    f'{reference.standard_steps:,} steps.')
    if curves := _curves(runner, ranked):
        yield '<h2>Curves</h2>'
        yield _note(f'At most {_DRAWN} curves, of the best trials.')
        yield curves
    yield '<h2>Trials</h2>'
    parts = (*(('fitness', *PARTS) if reference else ()), 'final_return')
    commands = {each.number: '\n'.join(map(
        reproducing_command, runner.sessions(each.number, each.values))) for each in ranked}
    best = ranked[0].number if ranked and ranked[0].value is not None else None
    yield _note('The best trial is the first. Its command is shown where the mouse rests.')
    yield '<div class="wide"><table><tr>' + _cells(
        ('trial', 'state', *(each.replace('_', ' ') for each in parts), *names), 'th') + '</tr>'
    for each in ranked:
        yield (f'<tr title="{_text(commands[each.number])}"'
               f'{" class=best" * (each.number == best)}>'
               f'<td>{each.number}</td><td class="text">{each.state}</td>'
               + _cells(each.record.get(part) for part in parts)
               + _cells(each.values.get(name) for name in names)
               + (f'<td class="note text">{_text(each.error)}</td>' if each.error else '')
               + '</tr>')
    yield '</table></div>'
    if graph.is_file():
        yield '<h2>Results by setting</h2>'
        yield _note(f'A dot is a trial, coloured by its {"fitness" if reference else "return"}; '
                    'the best has a circle. Settings that are the same in all trials are left '
                    'out.')
        yield _image(graph.read_bytes(), 'png', 'results by setting')
    if importance:
        yield '<h2>Importance of settings</h2>'
        yield _note('Share in the spread between good trials and all (PED-ANOVA, Watanabe et al. '
                    '2023); with few trials it is a guess.')
        yield _table(
            f'<td>{_text(name)}</td><td>{share:.0%}</td><td class="text">'
            f'<span class="bar" style="width:{20 * share:.2f}rem"></span></td>'
            for name, share in sorted(importance.items(), key=lambda item: -item[1]))
    yield '<h2>Commands</h2>'
    yield _note('Each repeats a session from its start, to the bit on the same machine; one that '
                'was interrupted went on from a checkpoint with new episodes.')
    for number, lines in commands.items():
        yield f'<details><summary>trial {number}</summary><pre>{_text(lines)}</pre></details>'


def _curves(runner: TrialRunner, ranked: Sequence[Outcome]) -> str:
    found = (curve_of(f'trial {each.number}{", " * bool(agent)}{agent}', folders)
             for each in ranked if each.value is not None for agent, folders in runs_by_agent(
                 runner.sessions(each.number, each.values)).items())
    curves = list(itertools.islice(filter(None, found), _DRAWN))
    if not curves:
        return ''
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'curves.svg'
        draw_curves(
            curves, path, x='steps', y='return', width=9.0,
            title=runner.spec.env_id or runner.spec.name,
            note='line: interquartile mean over sessions; band: 95 % bootstrap interval')
        return _image(path.read_bytes(), 'svg+xml', 'returns of the best trials by agent steps')


def _table(rows: Iterable[str]) -> str:
    return f'<table>{"".join(f"<tr>{row}</tr>" for row in rows)}</table>'


def _cells(values: Iterable[object], tag: str = 'td') -> str:
    return ''.join(f'<{tag}>{_text("" if value is None else _short(value))}</{tag}>'
                   for value in values)


def _note(text: str) -> str:
    return f'<p class="note">{text}</p>'


def _image(data: bytes, kind: str, text: str) -> str:
    return (f'<img alt="{_text(text)}" src="data:image/{kind};base64,'
            f'{base64.b64encode(data).decode()}">')


def _text(value: object) -> str:
    return html.escape(str(value))


def _short(value: object) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def deliver_benchmark(folder: Path) -> str:
    """Write the table of the specs with results in a folder, and return it, Markdown.

    A row has the best trial of a spec: its values, the mean return of the last 100 episodes of
    each session, and the agent steps after which such a mean first reached the standard return.
    """
    rows = [row for path in sorted(folder.glob('*/*'))
            if path.name in ('search', 'train') and (row := _row(path)) is not None]
    rows.sort(key=lambda row: (row['environment'], -(row['fitness'] or 0.0), row['spec']))
    write_text(folder / 'benchmark.json', json_lines(rows) + '\n')
    cells = [_BENCHMARK, ['---'] * len(_BENCHMARK)]
    cells += [(
        row['environment'], f'`{row["algorithm"]}`',
        ', '.join(f'{name} {_short(value)}' for name, value in row['values'].items()),
        str(row['trials']), ', '.join(map(_short, row['returns'])),
        ', '.join('–' if each is None else f'{each:,}' for each in row['steps']),
        '' if row['fitness'] is None else f'{row["fitness"]:.2f}') for row in rows]
    text = ''.join(f'| {" | ".join(each)} |\n' for each in cells)
    write_text(folder / 'benchmark.md', text)
    return text


def _row(folder: Path) -> dict[str, Any] | None:
    """Return the row of a spec; None if its best trial is not here, or no trial is complete."""
    summary = read_summary(folder)
    best = summary.best
    # Those of another host that searches too are not here.
    if best is None or not (trial := read_trial(folder / f'trial-{best.trial}')).sessions:
        return None
    try:
        spec = read_yaml(folder / 'spec.yaml')[summary.spec]
        agents, envs = (each if isinstance(each, list) else [each]
                        for each in (spec['agent'], spec['env']))
        env_ids = [str(each['env_id']) for each in envs]
        algorithms = [str(each['algorithm']) for each in agents]
    except (ValueError, KeyError, TypeError):
        raise ValueError(f'{folder / "spec.yaml"} is not the copy of a spec') from None
    standard = (trial.reference or {}).get('standard_steps', 0)
    return {
        'spec': summary.spec, 'environment': ', '.join(env_ids),
        'algorithm': ', '.join(algorithms), 'values': best.values,
        'trials': sum(summary.trials.values()), 'complete': summary.complete,
        'returns': [each.final_return for each in trial.sessions],
        'agent_steps': [each.agent_steps for each in trial.sessions],
        'steps': [round(standard / each.speed) if each.speed else None
                  for each in trial.sessions],
        'fitness': trial.fitness}
