"""Images of the newest policy are published while somebody subscribes; else the reason is."""

import json

import numpy as np
from sensor_msgs.msg import Image

from vdl_ros.common.settings import as_dict
from vdl_ros.envs import factory
from vdl_ros.envs.env_config import EnvConfig
from vdl_ros.msg import Policy
from vdl_ros.nodes import policy_renderer
from vdl_ros.rl.policy.policy import make_policy, weights
from vdl_ros.rl.settings import TrainConfig, make_algorithm_config
from vdl_ros.ros import qos
from vdl_ros.ros.messages.images import from_image
from vdl_ros.ros.messages.tensors import to_tensors

IMAGES = 'policy/image_raw'


def policy(env_id, *, scale=1.0):
    """Return a learner's message, with weights of CartPole-v1."""
    train = TrainConfig()
    network = make_policy(train, *factory.spaces(EnvConfig()), make_algorithm_config(train, {}))
    return Policy(
        learner_id='launch/start', config=json.dumps(as_dict(EnvConfig(env_id=env_id), train)),
        tensors=to_tensors({name: scale * each for name, each in weights(network).items()}))


def test_images_come_while_somebody_watches_and_the_reason_if_they_cannot(node_here, peer):
    running = node_here(policy_renderer.PolicyRendererNode)
    reports = peer.listen('/diagnostics')
    policies = qos.pub(peer.node, 'policy')

    def reported(text):
        return any(text in each.status[0].message for each in reports)

    def shown(count):
        return any(int(each.status[0].values[0].value) >= count for each in reports)

    policies.publish(policy('CartPole-v1'))
    peer.until(lambda: len(reports) > 2, 'reports')
    assert policies.get_subscription_count() == 0, 'nobody watches'
    images = []
    watcher = peer.node.create_subscription(Image, IMAGES, images.append, qos.subscription(IMAGES))
    # Latched: the policy from before is shown.
    peer.until(lambda: len(images) > 5, 'images')
    pixels = [from_image(each) for each in images]
    assert pixels[0].shape == (400, 600, 3)
    assert any(not np.array_equal(pixels[0], each) for each in pixels[1:])

    policies.publish(policy('CartPole-v1', scale=np.float32('nan')))
    peer.until(lambda: reported('policy refused: weights: '), 'the refusal')
    policies.publish(policy('vdl/Counter-v0'))
    peer.until(lambda: reported('env_id: vdl/Counter-v0 cannot render images'), 'the reason')
    policies.publish(policy('CartPole-v1'))
    count = len(images)
    peer.until(lambda: len(images) > count + 3, 'images again')
    peer.until(lambda: shown(5) and reports[-1].status[0].message == 'ok', 'no reason any more')
    peer.node.destroy_subscription(watcher)
    peer.until(lambda: policies.get_subscription_count() == 0, 'nobody watches any more')
    assert running.output.count('no images of the policy') == 2
