"""The plan of a cluster as a SLURM batch script, for a lab that has a scheduler."""

from __future__ import annotations

import shlex

from vdl_ros.cluster.host_agent import NOT_INHERITED
from vdl_ros.cluster.plan import Plan, Task
from vdl_ros.cluster.ssh import IN_SETUP

__all__ = ['batch_script']

_SCRIPT = '''#!/bin/bash
# Submit with sbatch. It has not been run on a real SLURM.
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node={tasks}
{gpus}#SBATCH --signal=B:TERM@90

mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
peers=$(IFS=';'; echo "${{nodes[*]}}")
in_setup={in_setup}

# Ctrl-C for every task: the learner saves, then all end.
end_all() {{ scancel --signal=INT "$SLURM_JOB_ID"; }}
trap end_all TERM INT

mkdir -p logs
{steps}

# wait returns early when a signal is trapped.
while wait "$learner_0"; status=$?; kill -0 "$learner_0" 2> /dev/null; do :; done
end_all
wait
exit "$status"
'''


def batch_script(plan: Plan) -> str:
    """
    Return a batch script: the hosts of the plan, in order, are the nodes that SLURM allocates.

    Addresses are those of the nodes, so the ones of the hosts file, ports and users are left out.
    """
    on = [plan.on(index) for index in range(len(plan.hosts))]
    gpus = max(_devices(task) for task in plan.tasks)
    return _SCRIPT.format(
        name=plan.name, nodes=len(plan.hosts), tasks=max(map(len, on)),
        gpus=f'#SBATCH --gpus-per-node={gpus}\n' if gpus else '', in_setup=shlex.quote(IN_SETUP),
        steps='\n'.join(_step(plan, task) for task in plan.tasks))


def _devices(task: Task) -> int:
    """Return how many CUDA devices a host needs for a task: up to the largest number it names."""
    named = [each for each in task.environment.get('CUDA_VISIBLE_DEVICES', '').split(',') if each]
    return max([len(named), *(int(each) + 1 for each in named if each.isdecimal())])


def _step(plan: Plan, task: Task) -> str:
    """Return the line that starts a task in the background."""
    words = [
        'srun', '--overlap', '--nodes=1', '--ntasks=1', f'--output=logs/{task.name}.log']
    environment = {key: value for key, value in task.environment.items()
                   if key != 'ROS_STATIC_PEERS'}
    line = [
        shlex.join(words), f'--nodelist="${{nodes[{task.host}]}}"',
        'bash -c "$in_setup" vdl_ros', shlex.quote(plan.hosts[task.host].setup),
        'env', *(f'-u {name}' for name in NOT_INHERITED),
        *(shlex.quote(f'{key}={value}') for key, value in environment.items()),
        '"ROS_STATIC_PEERS=$peers"', *(_word(plan, word) for word in task.command)]
    return f'{" ".join(line)} &\n{task.name}=$!'


def _word(plan: Plan, word: str) -> str:
    """Return a word of a command for the shell, with the first learner's node for its host."""
    name, _, value = word.partition(':=')
    if name == 'group_address':
        return f'"group_address:=${{nodes[{plan.tasks[0].host}]}}:{value.rpartition(":")[2]}"'
    return shlex.quote(word)
