"""Heads: modules from a vector of features to the parameters of a policy, or to values.

A head has hidden layers and a linear output. The output is always computed in float32: it costs little, and softmax and
the differences of values in advantages are sensitive to rounding.
"""

import math
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp
from jax.typing import DTypeLike

from spo.distributions import Gaussian, masked_logits
from spo.networks.torsos import MLP, Activation, check_sizes, dense
from spo.types import Array, Bool, Float

POLICY_GAIN = 0.01
VALUE_GAIN = 0.01


class CategoricalHead(nn.Module):
    """Logits of `num_actions` actions, with -inf for invalid ones (mask False)."""

    num_actions: int
    hidden_sizes: Sequence[int] = ()
    activation: Activation = nn.relu
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes("CategoricalHead", num_actions=self.num_actions)
        super().__post_init__()

    @nn.compact
    def __call__(
        self, features: Float[Array, " F"], action_mask: Bool[Array, " A"] | None = None
    ) -> Float[Array, " A"]:
        features = MLP(self.hidden_sizes, self.activation, self.dtype)(features)
        logits = dense(self.num_actions, POLICY_GAIN, jnp.float32, name="logits")(features)
        return logits if action_mask is None else masked_logits(logits, action_mask)


class Weights(nn.Module):
    """Kernel and bias of a linear output of a policy, with the names and initial values of `dense`."""

    size: int
    initial_bias: float = 0.0

    @nn.compact
    def __call__(self, num_inputs: int) -> tuple[Float[Array, "inputs size"], Float[Array, " size"]]:
        kernel = self.param("kernel", nn.initializers.orthogonal(POLICY_GAIN), (num_inputs, self.size))
        return kernel, self.param("bias", nn.initializers.constant(self.initial_bias), (self.size,))


class GaussianHead(nn.Module):
    """Mean and standard deviation of a diagonal Gaussian.

    scale = softplus(raw) + min_scale. Both outputs are nearly constant at first: the mean near 0, and the scale near
    `initial_scale`. With 0.7, most samples lie where tanh is not yet flat.
    """

    size: int
    hidden_sizes: Sequence[int] = ()
    activation: Activation = nn.silu
    min_scale: float = 1e-3
    initial_scale: float = 0.7
    dtype: DTypeLike = jnp.float32

    def __post_init__(self) -> None:
        check_sizes("GaussianHead", size=self.size)
        if not 0.0 <= self.min_scale < self.initial_scale:
            raise ValueError(
                "GaussianHead needs 0 <= min_scale < initial_scale, "
                f"got min_scale={self.min_scale}, initial_scale={self.initial_scale}."
            )
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Float[Array, " F"], action_mask: None = None) -> Gaussian:
        if action_mask is not None:
            raise ValueError("A Gaussian policy has no actions to mask: pass action_mask=None.")
        features = MLP(self.hidden_sizes, self.activation, self.dtype)(features)
        # The inverse of softplus: the scale then starts at `initial_scale`.
        raw_initial_scale = math.log(math.expm1(self.initial_scale - self.min_scale))
        layers = (Weights(self.size, name="mean"), Weights(self.size, raw_initial_scale, name="raw_scale"))
        # One product for both layers, and so one for the gradient of their input.
        kernel, bias = (
            jnp.concatenate(pair, axis=-1) for pair in zip(*(layer(features.size) for layer in layers), strict=True)
        )
        mean, raw_scale = jnp.split(features.astype(jnp.float32) @ kernel + bias, 2)
        return Gaussian(mean=mean, scale=nn.softplus(raw_scale) + self.min_scale)


class ActionValuesHead(nn.Module):
    """Q(s, a) of every discrete action a."""

    num_actions: int
    hidden_sizes: Sequence[int] = ()
    activation: Activation = nn.relu
    dtype: DTypeLike = jnp.float32
    gain: float = VALUE_GAIN

    def __post_init__(self) -> None:
        check_sizes("ActionValuesHead", num_actions=self.num_actions)
        super().__post_init__()

    @nn.compact
    def __call__(self, features: Float[Array, " F"]) -> Float[Array, " A"]:
        features = MLP(self.hidden_sizes, self.activation, self.dtype)(features)
        return dense(self.num_actions, self.gain, jnp.float32, name="values")(features)


class ValueHead(nn.Module):
    """One number: V(s), or Q(s, a) if the features describe state and action."""

    hidden_sizes: Sequence[int] = ()
    activation: Activation = nn.relu
    dtype: DTypeLike = jnp.float32
    gain: float = VALUE_GAIN

    @nn.compact
    def __call__(self, features: Float[Array, " F"]) -> Float[Array, ""]:
        features = MLP(self.hidden_sizes, self.activation, self.dtype)(features)
        return dense(1, self.gain, jnp.float32, name="value")(features)[0]
