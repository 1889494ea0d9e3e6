"""Two who command the motors at once, persons before programs, and two arms that obey."""

import pytest

from vdl_ros.ros.arm.commanders import CommandConflictDetector, Precedence, SecondArmDetector


def senders(*publishers):
    return CommandConflictDetector(0.5, lambda: list(publishers))


def test_one_sender_is_no_news():
    found = senders('/a', '/b')
    assert not any(found.update('/a', time / 10) for time in range(100))


def test_two_that_alternate_are_warned_of_but_not_all_the_time():
    found = senders()
    warnings = [found.update(name, step / 20) for step in range(200) for name in ('/b', '/a')]
    warned = [each for each in warnings if each]
    assert warned == ['arm/motors: 2 publishers at once: /a, /b'] * 2


def test_one_after_the_other_is_a_handover():
    found = senders('/a', '/b')
    first = [found.update('/a', step / 20) for step in range(20)]
    second = [found.update('/b', 1.0 + step / 20) for step in range(20)]
    assert not any(first + second)
    # And back, after a while.
    assert not found.update('/a', 3.0)


def test_senders_without_a_name_are_counted_in_the_graph():
    assert senders('/_ros2cli_1', '/_ros2cli_2', '/viewer').update('', 0.0) == \
        'arm/motors: 2 publishers at once: /_ros2cli_1, /_ros2cli_2'
    assert senders('/_ros2cli_1', '/viewer', '/arm/arm_controller').update('', 0.0) == ''
    found = senders('/_ros2cli_1')
    warned = [found.update(name, step / 20) for step in range(5) for name in ('', '/teleop')]
    assert next(filter(None, warned)) == \
        'arm/motors: 2 publishers at once: /teleop, a sender without a name'


FORGED = ['/a\x1b[2J\n[FATAL] forged', '/' + 'x' * 10**6]


@pytest.mark.parametrize('name', FORGED, ids=['control characters', 'endless'])
@pytest.mark.parametrize('sender', ['', '/b'], ids=['in the graph', 'in messages'])
def test_a_warning_quotes_the_names_of_publishers(name, sender):
    found = senders(name, '/c')
    warned = ''.join(found.update(each, step / 20)
                     for step in range(3) for each in ((sender, name) if sender else ('',)))
    assert warned.startswith('arm/motors: 2 publishers at once: ')
    assert warned.isprintable()
    assert len(warned) < 200


def test_senders_that_invent_names_are_forgotten_and_not_all_named():
    found = senders()
    names = [f'/{number}' for number in range(1000)]
    warned = [found.update(name, (step + 1) / 10_000) for step in range(2) for name in names]
    assert [each for each in warned if each] == [
        'arm/motors: 1000 publishers at once: /0, /1, /10, /100, /101 and 995 more']
    found.update('/late', 10.0)
    assert len(found._commanded_at) == 1


@pytest.mark.parametrize('program', ['/policy', '/bench/arm_controller'])
@pytest.mark.parametrize('person', ['/viewer', '/teleop', '/my_script', ''])
def test_a_person_comes_before_programs(program, person):
    precedence = Precedence(0.5)
    assert precedence.admits(program, True, 0.0)
    # A person who commands all motors off, to release the emergency stop, moves nothing.
    assert precedence.admits(person, False, 0.1)
    assert precedence.admits(program, True, 0.2)
    assert precedence.admits(person, True, 1.0)
    assert not precedence.admits(program, True, 1.01)
    # Not even a program's stop stops what a person moves.
    assert not precedence.admits(program, False, 1.02)
    # Released: the program is kept off a little longer.
    assert precedence.admits(person, False, 1.3)
    assert not precedence.admits(program, True, 1.4)
    assert precedence.admits(program, True, 1.5)


def test_persons_have_no_precedence_among_each_other():
    precedence = Precedence(0.5)
    assert all(precedence.admits(name, True, 0.0) for name in ('/viewer', '/teleop', '/viewer'))


def test_a_second_arm_is_warned_of_while_it_is_there_but_not_at_once():
    names = ['/sim_arm']
    found = SecondArmDetector(lambda: names)
    assert not any(found.update(float(second)) for second in range(10))
    names.append('/sim_arm')
    assert found.update(10.0) == ''
    assert found.update(13.0) == (
        '2 arms obey the same commands: /sim_arm, /sim_arm: end one, or give it a namespace or a '
        'ROS_DOMAIN_ID of its own')
    del names[1]
    assert found.update(14.0) == ''
    names.append('/arm_driver')
    assert found.update(15.0) == ''
