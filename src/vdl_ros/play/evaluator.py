"""Evaluates policies during their training, in environments of their own."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from vdl_ros.attacks.attack_config import NONE, AttackConfig, SurrogateConfig, verify_attack
from vdl_ros.attacks.attacked_env import AttackedEnv, attack_environments
from vdl_ros.common.command_line import say
from vdl_ros.common.settings import SettingError, select
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import ROBOT, EnvConfig
from vdl_ros.play.saved_policy import load_surrogate
from vdl_ros.rl.acting.act import Act
from vdl_ros.rl.acting.evaluation import Evaluation, evaluate
from vdl_ros.rl.data.unroll import Arrays
from vdl_ros.rl.learning.evaluations import EvaluatedPolicy, Result
from vdl_ros.rl.policy.policy import load_weights, make_policy
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config

# Added to the seed of the training, for other episodes than its own.
_SEED = 3000
# Most environments that are stepped together; a process may hold no more than num_envs.
_ENVIRONMENTS = 8


def verify_evaluations(env: EnvConfig, train: TrainConfig, video: bool = False) -> None:
    """Refuse who else would act in an environment that there is only once, by a SettingError."""
    for name, value, allowed in (
            ('eval_every', train.eval_every, '0'), ('video', video, 'false')):
        if value and env.env_id.startswith(ROBOT):
            raise SettingError(f'{name}: {str(value).lower()} is not allowed with env_id '
                               f"{env.env_id!r}: {allowed}, as the robot is the actor's")


class PolicyEvaluator:
    """Environments like a training's, and a policy that acts by its most likely actions.

    A delay or an attack is that of the training; an episode is all lives of a game. Each
    evaluation begins with the same seeds, so policies are compared on the same starts.

    ``config`` are settings of a training, as a learner publishes them.

    Raises:
        ValueError: settings that are not allowed, or environments that cannot be created.
    """

    def __init__(
        self, config: Mapping[str, Any], surrogate: SurrogateConfig | None = None,
    ) -> None:
        surrogate = surrogate or SurrogateConfig()
        env, attack = select(EnvConfig, config), select(AttackConfig, config)
        train = select(TrainConfig, config)
        verify_evaluations(env, train)
        # Here are the weights, wherever actions are chosen in the training.
        train = verify_attack(attack, replace(train, inference='actor'), surrogate)
        self._episodes, self._seed = train.eval_episodes, (train.seed + _SEED) % 2**31
        attacks = attack.adversarial_mode != NONE
        gradients = load_surrogate(surrogate) if attacks else None
        self._envs = attack_environments(
            factory.make(replace(env, episodic_life=False), self._seed,
                         num_envs=min(_ENVIRONMENTS, self._episodes, env.num_envs),
                         same_step=not attacks),
            attack, train, self._seed, gradients)
        try:
            spaces = self._envs.single_observation_space, self._envs.single_action_space
            # Its weights are drawn, and replaced.
            with torch.random.fork_rng(devices=[]):
                self._policy = make_policy(train, *spaces, make_algorithm_config(train, config))
        except Exception:
            self._envs.close()
            raise

    def evaluate(
        self, weights: Arrays, stop: threading.Event | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> Evaluation | None:
        """Return the results of a policy; None if ``stop`` was set before all episodes had ended.

        The random numbers of the process go on as if there had been no evaluation.

        Raises:
            ValueError: weights of another network or not finite, or environments that fail.
        """
        load_weights(self._policy, weights)
        act = Act(self._policy, self._envs.single_action_space, deterministic=True)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._seed)
            if isinstance(self._envs, AttackedEnv):
                self._envs.follow(self._policy, act.next_state)
            found = evaluate(self._envs, act, self._episodes, self._seed, stop, tell=tell)
        return found if len(found.episodes) == self._episodes else None

    def close(self) -> None:
        self._envs.close()


class LocalEvaluator:
    """An evaluator in the process of the training, which waits for it."""

    present = True

    def __init__(self, evaluator: PolicyEvaluator, stop: threading.Event) -> None:
        self._evaluator, self._stop = evaluator, stop
        self._results: list[Result] = []

    def start(self, policy: EvaluatedPolicy) -> None:
        found = self._evaluator.evaluate(
            policy.weights, self._stop, lambda line: say(f'evaluation: {line}'))
        if found is not None:
            self._results.append(Result(policy.agent_steps, found))

    def take(self) -> Result | None:
        """Return a result that was not returned before, if there is one."""
        return self._results.pop(0) if self._results else None
