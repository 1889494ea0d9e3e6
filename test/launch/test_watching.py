"""A training is watched in a browser and in TensorBoard; both end with its launch."""

import re
import urllib.error
import urllib.request

import numpy as np
import pytest


def curve(browser):
    """Return the pixels of the first curve, as text; None before there is one."""
    return browser.run('const found = document.querySelector(".uplot canvas");'
                       'return found && found.toDataURL()')


def frame(browser):
    """Return the middle of the scene, where the policy acts."""
    return browser.screenshot()[200:600, 340:860].astype(int)


def figures(browser, label):
    """Return the number in a row of the table; 0 while there is none."""
    found = re.search(rf'{label}\s+([\d,]+)', browser.text)
    return int(found[1].replace(',', '')) if found else 0


@pytest.mark.slow
# What shows a training has a low priority: beside other tests it starves.
@pytest.mark.alone
def test_curve_policy_and_bottleneck_are_shown_while_cartpole_is_learned(launch, run, browser):
    train = launch.file('train', f'run_dir:={run}', 'env_id:=CartPole-v1',
                        'total_steps:=1000000000', 'stop_at_return:=1e9', 'num_actors:=1',
                        'view:=true', 'view_port:=0', 'tensorboard:=true')

    def address(what):
        return train.wait_for(lambda: re.search(
            rf'{what}: (http://127.0.0.1:\d+/\S*)\n', train.output), what)[1]

    view, board = address('view of the training'), address('TensorBoard')
    with urllib.request.urlopen(f'{board}data/runs', timeout=240) as response:
        assert response.status == 200
    with pytest.raises(urllib.error.HTTPError, match='403'):
        urllib.request.urlopen(urllib.request.Request(board, headers={'Host': 'evil.example'}))
    browser.open(f'{view}?fixedDpr=1')
    for text in ('CartPole-v1 · impala', 'Bottleneck:', 'value loss'):
        train.wait_for(lambda text=text: text in browser.text, text)
    steps, shown = figures(browser, 'agent steps'), curve(browser)
    train.wait_for(lambda: figures(browser, 'agent steps') > steps, 'more steps')
    train.wait_for(lambda: curve(browser) not in (None, shown), 'a longer curve')
    # Drawn by the renderer: the black cart, which moves.
    train.wait_for(lambda: (frame(browser) < 40).all(axis=-1).sum() > 200, 'the policy')
    before = frame(browser)
    train.wait_for(lambda: np.abs(frame(browser) - before).max() > 60, 'another image')
    assert browser.errors() == []

    # The training goes on without a part of the view, and the page says so.
    train.nodes('policy_renderer')[0].kill()
    train.wait_for(lambda: 'no policy_renderer runs' in browser.text, 'the note')
    steps = figures(browser, 'agent steps')
    train.wait_for(lambda: figures(browser, 'agent steps') > steps, 'more steps')
    train.stop()
    assert run.summary['bottleneck']
    assert run.summary['bottleneck'] in train.output
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(board, timeout=10)
