"""Print a plan as a Kubernetes manifest or a Slurm batch script."""

import shlex
from typing import Any

import yaml

from vdl_ros.cluster.host_agent import NOT_INHERITED
from vdl_ros.cluster.plan import FIRST_LEARNER, Plan, Task
from vdl_ros.cluster.ssh import IN_SETUP

_HEAD = '''# Create with kubectl create -f, remove with kubectl delete -f.
# It has not been run on a real Kubernetes.
'''
_RUNS = '/runs'


def manifest(plan: Plan, image: str) -> str:
    """Return a manifest: a Service that names pods, a volume for the run, a Job for each task.

    Kubernetes chooses the nodes, so hosts, ports and users of the hosts file are left out. Actors
    wait until the learners have addresses. Their Jobs run until they are deleted. ``image`` is
    that of a container with this package and the plan's set-up file.
    """
    name = _dns(plan.name)
    found: list[dict[str, Any]] = [
        {'apiVersion': 'v1', 'kind': 'Service', 'metadata': {'name': name},
         # Without an address of its own it only names pods; also those that are not ready.
         'spec': {'clusterIP': 'None', 'publishNotReadyAddresses': True,
                  'selector': {'cluster': name},
                  'ports': [{'name': 'group', 'port': _group_port(plan), 'protocol': 'TCP'}]}},
        {'apiVersion': 'v1', 'kind': 'PersistentVolumeClaim', 'metadata': {'name': f'{name}-runs'},
         'spec': {'accessModes': ['ReadWriteOnce'],
                  'resources': {'requests': {'storage': '10Gi'}}}}]
    found += [_job(plan, task, name, image) for task in plan.tasks]
    return _HEAD + yaml.safe_dump_all(found, sort_keys=False, width=99)


def _job(plan: Plan, task: Task, name: str, image: str) -> dict[str, Any]:
    learners = [f'{_dns(each.name)}.{name}' for each in plan.tasks if each.is_learner]
    environment = {**task.environment, 'ROS_STATIC_PEERS': ';'.join(learners)}
    devices = [each for each in environment.pop('CUDA_VISIBLE_DEVICES', '').split(',') if each]
    container: dict[str, Any] = {
        'name': task.name.partition('_')[0], 'image': image,
        'command': ['bash', '-c', IN_SETUP, 'vdl_ros', plan.hosts[task.host].setup,
                    *(_pod_word(plan, word, learners[0]) for word in task.command)],
        'env': [{'name': key, 'value': value} for key, value in environment.items()]}
    if devices:
        container['resources'] = {'limits': {'nvidia.com/gpu': len(devices)}}
    pod: dict[str, Any] = {
        'hostname': _dns(task.name), 'subdomain': name, 'restartPolicy': 'OnFailure',
        # Time to save.
        'terminationGracePeriodSeconds': 90,
        'initContainers': [{
            'name': 'wait', 'image': image,
            'command': ['bash', '-c', 'for each; do until getent hosts "$each"; do sleep 1; done; '
                        'done', 'wait', *learners]}],
        'containers': [container]}
    if task.name == FIRST_LEARNER:
        container['volumeMounts'] = [{'name': 'runs', 'mountPath': _RUNS}]
        pod['volumes'] = [{'name': 'runs', 'persistentVolumeClaim': {'claimName': f'{name}-runs'}}]
    return {
        'apiVersion': 'batch/v1', 'kind': 'Job',
        'metadata': {'name': f'{name}-{_dns(task.name)}', 'labels': {'cluster': name}},
        'spec': {'backoffLimit': 8,
                 'template': {'metadata': {'labels': {'cluster': name}}, 'spec': pod}}}


def _dns(name: str) -> str:
    return name.lower().replace('_', '-').strip('-')


def _group_port(plan: Plan) -> int:
    for word in plan.tasks[0].command:
        if word.startswith('group_address:='):
            return int(word.rpartition(':')[2])
    return 29400


def _pod_word(plan: Plan, word: str, first: str) -> str:
    """Return a word of a command, with the pod of learner 0 for its host, and the volume."""
    name, _, _ = word.partition(':=')
    if name == 'group_address':
        return f'group_address:={first}:{_group_port(plan)}'
    if name == 'run_dir':
        return f'run_dir:={_RUNS}/{plan.run_dir.rpartition("/")[2]}'
    return word


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
    """Return a batch script: the hosts of the plan, in order, are the nodes that SLURM allocates.

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
    words = ['srun', '--overlap', '--nodes=1', '--ntasks=1', f'--output=logs/{task.name}.log']
    environment = {key: value for key, value in task.environment.items()
                   if key != 'ROS_STATIC_PEERS'}
    line = [
        shlex.join(words), f'--nodelist="${{nodes[{task.host}]}}"',
        'bash -c "$in_setup" vdl_ros', shlex.quote(plan.hosts[task.host].setup),
        'env', *(f'-u {name}' for name in NOT_INHERITED),
        *(shlex.quote(f'{key}={value}') for key, value in environment.items()),
        '"ROS_STATIC_PEERS=$peers"', *(_shell_word(plan, word) for word in task.command)]
    return f'{" ".join(line)} &\n{task.name}=$!'


def _shell_word(plan: Plan, word: str) -> str:
    """Return a word of a command for the shell, with the first learner's node for its host."""
    name, _, value = word.partition(':=')
    if name == 'group_address':
        return f'"group_address:=${{nodes[{plan.tasks[0].host}]}}:{value.rpartition(":")[2]}"'
    return shlex.quote(word)
