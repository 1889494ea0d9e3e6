"""The plan of a cluster as a Kubernetes manifest, for a lab that has such a cluster."""

from __future__ import annotations

from typing import Any

import yaml

from vdl_ros.cluster.plan import FIRST_LEARNER, Plan, Task
from vdl_ros.cluster.ssh import IN_SETUP

__all__ = ['manifest']

_HEAD = '''# Create with kubectl create -f, remove with kubectl delete -f.
# It has not been run on a real Kubernetes.
'''
_RUNS = '/runs'


def manifest(plan: Plan, image: str) -> str:
    """
    Return a manifest: a Service that gives pods names, a volume for the run, a Job for each task.

    Kubernetes chooses the nodes, so hosts, ports and users of the hosts file are left out. Actors
    wait until the learners have addresses. Their Jobs run until they are deleted.

    Args:
        plan: what runs where.
        image: container image with this package and the plan's set-up file.
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
    """Return the Job of a task."""
    learners = [f'{_dns(each.name)}.{name}' for each in plan.tasks if each.is_learner]
    environment = {**task.environment, 'ROS_STATIC_PEERS': ';'.join(learners)}
    devices = [each for each in environment.pop('CUDA_VISIBLE_DEVICES', '').split(',') if each]
    container: dict[str, Any] = {
        'name': task.name.partition('_')[0], 'image': image,
        'command': ['bash', '-c', IN_SETUP, 'vdl_ros', plan.hosts[task.host].setup,
                    *(_word(plan, word, learners[0]) for word in task.command)],
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
        pod['volumes'] = [
            {'name': 'runs', 'persistentVolumeClaim': {'claimName': f'{name}-runs'}}]
    return {
        'apiVersion': 'batch/v1', 'kind': 'Job',
        'metadata': {'name': f'{name}-{_dns(task.name)}', 'labels': {'cluster': name}},
        'spec': {'backoffLimit': 8,
                 'template': {'metadata': {'labels': {'cluster': name}}, 'spec': pod}}}


def _dns(name: str) -> str:
    """Return a name of letters, digits, _ and - as a label of DNS."""
    return name.lower().replace('_', '-').strip('-')


def _group_port(plan: Plan) -> int:
    """Return the port at which learner 0 waits for others; 29400 if there are none."""
    for word in plan.tasks[0].command:
        if word.startswith('group_address:='):
            return int(word.rpartition(':')[2])
    return 29400


def _word(plan: Plan, word: str, first: str) -> str:
    """Return a word of a command, with the pod of learner 0 for its host, and the volume."""
    name, _, _ = word.partition(':=')
    if name == 'group_address':
        return f'group_address:={first}:{_group_port(plan)}'
    if name == 'run_dir':
        return f'run_dir:={_RUNS}/{plan.run_dir.rpartition("/")[2]}'
    return word
