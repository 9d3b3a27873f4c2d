"""Networks as a user writes them: functions from specs to a network, `training.own_networks:small_cnn`."""

import flax.linen as nn
import jax.numpy as jnp


class SmallCNN(nn.Module):
    """One convolution and one layer."""

    width: int = 8

    @nn.compact
    def __call__(self, image):
        x = nn.relu(nn.Conv(2, (2, 2))(image))
        return nn.relu(nn.Dense(self.width)(jnp.ravel(x)))


def small_cnn(observation_spec, action_spec):
    return SmallCNN()


def image_as_features(observation_spec, action_spec):
    return lambda observation: observation


class Column(nn.Module):
    """A matrix, where a vector is expected."""

    def __call__(self, vector):
        return vector[:, None]


def no_vector(observation_spec, action_spec):
    return Column()
