"""Reference returns of environments, from ``config/reference_returns.yaml``."""

from __future__ import annotations

import base64
import csv
import dataclasses
import html
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from vdl_ros.common.files import atomic_file, find_resource, write_text
from vdl_ros.common.settings import build
from vdl_ros.experiments.fitness import PARTS
from vdl_ros.experiments.results import reproducing_command, runs_by_agent
from vdl_ros.experiments.search import Outcome
from vdl_ros.experiments.spec import ReferenceConfig, Spec
from vdl_ros.experiments.trials import TrialRunner
from vdl_ros.rl.plots.curves import Curve

__all__ = ['Page', 'SUMMARY', 'by_value', 'deliver_benchmark', 'deliver_experiment',
           'read_summary', 'reference_of', 'references', 'write_page']


def references() -> dict[str, ReferenceConfig]:
    """Return the table, by environment."""
    content = yaml.safe_load(find_resource('config/reference_returns.yaml').read_text())
    return {env_id: build(ReferenceConfig, row) for env_id, row in content.items()}


def reference_of(spec: Spec) -> ReferenceConfig | None:
    """Return the reference of a spec, or else of its environment; None if there is neither."""
    return spec.reference or references().get(spec.env_id)


# Trials whose curves are drawn.
_DRAWN = 6
_STYLE = '''
:root { color-scheme: light; --blue: #1f6feb; --grey: #57606a; --line: #d0d7de }
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2328; background: #fff; margin: 2rem auto;
  max-width: 66rem; padding: 0 1rem }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
p.note, td.note { color: var(--grey) }
div.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { padding: .3rem .8rem .3rem 0; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap } th:first-child, td:first-child, td.text { text-align: left }
img { max-width: 100%; height: auto } pre { background: #f6f8fa; padding: .6rem .8rem;
  overflow-x: auto; white-space: pre-wrap; overflow-wrap: anywhere }
.bar { display: inline-block; height: .8rem; background: var(--blue); vertical-align: middle }
'''


@dataclasses.dataclass(frozen=True)
class Page:
    """What the page shows.

    Attributes:
        importance: share of each in the spread of results.
        mode: train, search or dev.
    """

    runner: TrialRunner
    ranked: Sequence[Outcome]
    names: Sequence[str]
    importance: Mapping[str, float]
    mode: str
    complete: bool


def write_page(page: Page, graph: Path) -> None:
    """Write ``index.html`` in the folder of the experiment, with the graph if it is there."""
    spec = page.runner.spec
    body = [
        f'<h1>{_text(spec.name)}</h1>', f'<p>{_text(spec.description)}</p>', *_head(page),
        *_curves(page), '<h2>Trials</h2>', _trials(page)]
    if graph.is_file():
        body += ['<h2>Results by setting</h2>',
                 '<p class="note">A dot is a trial, coloured by its '
                 f'{"fitness" if reference_of(spec) else "return"}.</p>',
                 _image(graph.read_bytes(), 'png', 'results by setting')]
    body += _importance(page)
    body += ['<h2>Commands</h2>', '<p class="note">Each repeats a session from its start, to the '
             'bit on the same machine; one that was interrupted went on from a checkpoint with '
             'new episodes.</p>', *_commands(page)]
    write_text(page.runner.folder / 'index.html', '\n'.join([
        '<!DOCTYPE html>', '<html lang="en">', '<head>', '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{_text(spec.name)}</title>', f'<style>{_STYLE}</style>', '</head>', '<body>',
        *body, '</body>', '</html>', '']))


def _head(page: Page) -> Iterable[str]:
    """Yield what the experiment is, in words."""
    spec = page.runner.spec
    counts = ', '.join(f'{count} {state}' for state in ('complete', 'pruned', 'failed') if (
        count := sum(each.state == state for each in page.ranked)))
    yield (f'<p>{_text(spec.subject)}; {page.mode}, '
           f'{spec.meta.sessions} session{"s" * (spec.meta.sessions > 1)} a trial; trials: '
           f'{counts or "none"}{"" if page.complete else "; not complete yet"}.</p>')
    reference = reference_of(spec)
    if reference is None:
        yield ('<p class="note">There is no reference of this environment, so trials are ranked '
               'by the mean return of their last 100 episodes.</p>')
    else:
        yield (f'<p class="note">Fitness: strength is 0 at the return {reference.random_return:g} '
               f'of random actions and 1 at {reference.standard_return:g}; speed is 1 if that '
               f'takes {reference.standard_steps:,} steps.</p>')


def _curves(page: Page) -> Iterable[str]:
    """Yield the figure of the best trials."""
    # Imported here because matplotlib takes a second.
    from vdl_ros.experiments.graphs import curve_of, draw_best

    curves: list[Curve] = []
    for each in page.ranked:
        runs = runs_by_agent(page.runner.sessions(each.number, each.values))
        for agent, folders in runs.items() if each.value is not None else ():
            label = f'trial {each.number}{", " * bool(agent)}{agent}'
            if len(curves) < _DRAWN and (curve := curve_of(label, folders)) is not None:
                curves.append(curve)
    if not curves:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'curves.svg'
        draw_best(curves, path, title=page.runner.spec.env_id or page.runner.spec.name)
        yield '<h2>Curves</h2>'
        if len(curves) == _DRAWN:
            yield f'<p class="note">The {_DRAWN} best trials.</p>'
        yield _image(path.read_bytes(), 'svg+xml', 'returns of the best trials by agent steps')


def _trials(page: Page) -> str:
    """Return the table of trials."""
    has_fitness = reference_of(page.runner.spec) is not None
    parts = (*(('fitness', *PARTS) if has_fitness else ()), 'final_return')
    rows = [''.join(f'<th>{_text(each.replace("_", " "))}</th>'
                    for each in ('trial', 'state', *parts)) + ''.join(
                        f'<th>{_text(name)}</th>' for name in page.names)]
    for each in page.ranked:
        cells = [f'<td>{each.number}</td>', f'<td class="text">{each.state}</td>']
        cells += [f'<td>{_number(each.record.get(part))}</td>' for part in parts]
        cells += [f'<td>{_number(each.values.get(name))}</td>' for name in page.names]
        if each.error:
            cells.append(f'<td class="note text">{_text(each.error)}</td>')
        rows.append(''.join(cells))
    return '<div class="wide"><table>' + ''.join(f'<tr>{row}</tr>' for row in rows) + (
        '</table></div>')


def _importance(page: Page) -> Iterable[str]:
    """Yield the importance of settings as bars."""
    if not page.importance:
        return
    yield '<h2>Importance of settings</h2>'
    yield ('<p class="note">Share in the spread between good trials and all (PED-ANOVA, Watanabe '
           'et al. 2023); with few trials it is a guess.</p>')
    rows = ''.join(
        f'<tr><td>{_text(name)}</td><td>{share:.0%}</td><td class="text">'
        f'<span class="bar" style="width:{20 * share:.2f}rem"></span></td></tr>'
        for name, share in sorted(page.importance.items(), key=lambda item: -item[1]))
    yield f'<table>{rows}</table>'


def _commands(page: Page) -> Iterable[str]:
    """Yield the commands of each trial, to unfold."""
    for each in page.ranked:
        lines = '\n'.join(reproducing_command(session)
                          for session in page.runner.sessions(each.number, each.values))
        yield (f'<details><summary>trial {each.number}</summary><pre>{_text(lines)}</pre>'
               '</details>')


def _image(data: bytes, kind: str, text: str) -> str:
    """Return an image whose data is in the page."""
    return (f'<img alt="{_text(text)}" src="data:image/{kind};base64,'
            f'{base64.b64encode(data).decode()}">')


def _number(value: object) -> str:
    if isinstance(value, float):
        return f'{value:.4g}'
    return '' if value is None else _text(value)


def _text(value: object) -> str:
    return html.escape(str(value))


#: What an experiment came to; ``complete`` says whether all its trials have ended.
SUMMARY = 'experiment.json'


def by_value(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Return trials with the best first, and those that are not complete at the end."""
    return sorted(outcomes, key=lambda each: (
        each.value is None, -(each.value or 0.0), each.number))


def read_summary(folder: Path) -> dict[str, Any]:
    """Return what :data:`SUMMARY` has in a folder; {} without one that can be read."""
    try:
        found = json.loads((folder / SUMMARY).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def deliver_experiment(
    runner: TrialRunner, outcomes: Sequence[Outcome], importance: Mapping[str, float],
    mode: str, *, complete: bool,
) -> list[Outcome]:
    """Write ``experiment_df.csv``, ``experiment_graph.png``, ``index.html``, ``experiment.json``.

    Args:
        importance: share of each setting in the spread of results; may be empty.
        mode: train, search or dev.

    Returns:
        The outcomes, the best first.
    """
    folder, spec = runner.folder, runner.spec
    ranked = by_value(outcomes)
    names = list(spec.search.spaces) if spec.search and mode != 'train' else []
    _write_table(folder / 'experiment_df.csv', ranked, names)
    graph = folder / 'experiment_graph.png'
    if names and any(each.value is not None for each in ranked):
        from vdl_ros.experiments.graphs import draw_experiment
        draw_experiment(ranked, names, graph)
    write_page(Page(runner, ranked, names, dict(importance), mode, complete), graph)
    best = ranked[0] if ranked and ranked[0].value is not None else None
    counts = {state: sum(each.state == state for each in ranked)
              for state in ('complete', 'pruned', 'failed')}
    write_text(folder / SUMMARY, json.dumps({
        'spec': spec.name, 'mode': mode, 'complete': complete, 'trials': counts,
        'best': None if best is None else {
            'trial': best.number, 'values': best.values, **best.record},
        'importance': importance}, indent=1) + '\n')
    return ranked


def _write_table(path: Path, ranked: Sequence[Outcome], names: Sequence[str]) -> None:
    """Write a row for each trial, the best first."""
    scored = ('fitness', *PARTS, 'final_return')
    with atomic_file(path) as partial, partial.open('w', newline='') as file:
        writer = csv.writer(file)
        writer.writerow(('trial', 'state', *scored, *names))
        for each in ranked:
            writer.writerow((each.number, each.state, *(each.record.get(part, '')
                             for part in scored), *(each.values.get(name, '') for name in names)))


_HEAD = ('environment', 'algorithm', 'best', 'trials', 'return by seed',
         'steps to the standard return', 'fitness')


def deliver_benchmark(folder: Path) -> str:
    """Write the table of the specs with results in a folder, and return it, Markdown.

    A row has the best trial of a spec: its values, the mean return of the last 100 episodes of
    each session, and the agent steps after which such a mean first reached the standard return.

    Args:
        folder: of a file of specs, with ``SPEC/MODE/experiment.json``.
    """
    rows = [row for path in sorted(folder.glob('*/*'))
            if path.name in ('search', 'train') and (row := _row(path)) is not None]
    rows.sort(key=lambda row: (row['environment'], -(row['fitness'] or 0.0), row['spec']))
    write_text(folder / 'benchmark.json', json.dumps(rows, indent=1) + '\n')
    lines = [_line(_HEAD), _line(['---'] * len(_HEAD))]
    lines += [_line((
        row['environment'], f'`{row["algorithm"]}`',
        ', '.join(f'{name} {_short(value)}' for name, value in row['values'].items()),
        str(row['trials']), ', '.join(_short(each) for each in row['returns']),
        ', '.join('–' if each is None else f'{each:,}' for each in row['steps']),
        '' if row['fitness'] is None else f'{row["fitness"]:.2f}')) for row in rows]
    text = '\n'.join(lines) + '\n'
    write_text(folder / 'benchmark.md', text)
    return text


def _row(folder: Path) -> dict[str, Any] | None:
    """Return the row of a spec; None if its best trial is not here, or no trial is complete."""
    summary = read_summary(folder)
    best = summary.get('best')
    if not best:
        return None
    try:
        trial = json.loads((folder / f'trial-{best["trial"]}' / 'trial_data.json').read_text())
    except (OSError, ValueError):
        # Of another host that searches too, or removed.
        return None
    spec = yaml.safe_load((folder / 'spec.yaml').read_text())[summary['spec']]
    agents, envs = (each if isinstance(each, list) else [each]
                    for each in (spec['agent'], spec['env']))
    standard = (trial.get('reference') or {}).get('standard_steps', 0)
    return {
        'spec': summary['spec'],
        'environment': ', '.join(str(each['env_id']) for each in envs),
        'algorithm': ', '.join(str(each.get('algorithm', '')) for each in agents),
        'values': best['values'], 'trials': sum(summary['trials'].values()),
        'complete': summary['complete'],
        'returns': [each['final_return'] for each in trial['sessions']],
        'agent_steps': [each['agent_steps'] for each in trial['sessions']],
        'steps': [round(standard / each['speed']) if each.get('speed') else None
                  for each in trial['sessions']],
        'fitness': trial.get('fitness')}


def _short(value: object) -> str:
    """Return a number as people read it."""
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def _line(cells: Sequence[str]) -> str:
    return f'| {" | ".join(cells)} |'
