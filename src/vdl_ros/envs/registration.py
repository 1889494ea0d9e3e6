"""Adds this package's environments to Gymnasium's registry; imports none of them."""

import gymnasium

REACH = 'vdl_ros/OWI535Reach-v0'
REACH_PIXELS = 'vdl_ros/OWI535ReachPixels-v0'
PUSH = 'vdl_ros/OWI535Push-v0'
PICK_PLACE = 'vdl_ros/OWI535PickPlace-v0'
#: Steps after which an episode is truncated, at 10 Hz: 20 s, and 30 s.
REACH_STEPS, PUSH_STEPS, PICK_PLACE_STEPS = 200, 200, 300
#: The SO-101's, with the steps of their contracts.
SO101_REACH, SO101_PICK = 'vdl_ros/SO101Reach-v0', 'vdl_ros/SO101Pick-v0'
_SO101 = {SO101_REACH: ('ReachEnv', 100), SO101_PICK: ('PickEnv', 150)}

#: CartPole in pixels and its variants, with their arguments.
CART_POLE_PIXELS: dict[str, dict[str, float]] = {
    'vdl_ros/CartPolePixels-v0': {},
    'vdl_ros/CartPolePixels-IncreasedGravity-v0': {'gravity': 20.0},
    'vdl_ros/CartPolePixels-DecreasedGravity-v0': {'gravity': 5.0},
    'vdl_ros/CartPolePixels-IncreasedCartMass-v0': {'mass_cart': 2.0},
    'vdl_ros/CartPolePixels-IncreasedPoleMass-v0': {'mass_pole': 0.3},
}
CAR_RACING_PIXELS = 'vdl_ros/CarRacingPixels-v0'


def register() -> None:
    for name, module, kind, steps in (
            (REACH, 'reach', 'Reach', REACH_STEPS),
            (REACH_PIXELS, 'reach', 'ReachPixels', REACH_STEPS),
            (PUSH, 'cube', 'Push', PUSH_STEPS),
            (PICK_PLACE, 'cube', 'PickPlace', PICK_PLACE_STEPS)):
        if name not in gymnasium.registry:
            place = f'vdl_ros.envs.owi535.{module}:{kind}'
            gymnasium.register(name, entry_point=f'{place}Env',
                               vector_entry_point=f'{place}VectorEnv', max_episode_steps=steps)
    for name, (kind, steps) in _SO101.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point=f'vdl_ros.envs.so101.environments:{kind}',
                               max_episode_steps=steps)
    for name, arguments in CART_POLE_PIXELS.items():
        if name not in gymnasium.registry:
            gymnasium.register(
                name, entry_point='vdl_ros.envs.pixels:CartPolePixelsEnv',
                max_episode_steps=200, reward_threshold=195.0, kwargs=arguments)
    if CAR_RACING_PIXELS not in gymnasium.registry:
        gymnasium.register(
            CAR_RACING_PIXELS, entry_point='vdl_ros.envs.pixels:CarRacingPixelsEnv',
            max_episode_steps=1000, reward_threshold=900.0)
