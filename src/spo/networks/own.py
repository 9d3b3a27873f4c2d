"""Networks that a user has written: a function from specs to a network, checked before a run starts.

The function `(observation_spec, action_spec) -> network` may return

| Result | Use |
|---|---|
| a Flax module from one observation to a vector of features | torso of every network, with the default heads |
| an `Architecture` | the same, with heads and sharing as chosen |
| an `ActorCritic` | policy and value as a whole, for all algorithms that use V |
| `Networks(actor_critic, q_network)` | the same, for MPO and SMC-ENT too |
"""

import contextlib
import contextvars
import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from spo.distributions import Distribution, Gaussian
from spo.importing import OBJECT, import_function, is_object_name
from spo.networks.actor_critic import blank
from spo.networks.architectures import Architecture
from spo.networks.contract import ActorCritic, Networks, ObservationSpec, QNetwork
from spo.quoting import quote
from spo.types import ActionSpec, DiscreteActions, PyTree

#: (observation spec, action spec) -> a Flax module, an `Architecture`, an `ActorCritic` or `Networks`
NetworkFunction: TypeAlias = Callable[[ObservationSpec, ActionSpec], Any]

_ARGUMENTS = ("observation_spec", "action_spec")
_given: contextvars.ContextVar[NetworkFunction | None] = contextvars.ContextVar("given network", default=None)


@contextlib.contextmanager
def give_network(function: NetworkFunction | None) -> Iterator[None]:
    """Provides the function of a network `object:NAME`, which has no name to import, inside a `with` block."""
    token = _given.set(function)
    try:
        yield
    finally:
        _given.reset(token)


def find_network(kind: str) -> NetworkFunction:
    """Returns the function of a kind `module:function`, imported, or of `object:NAME`, from `give_network`."""
    if not is_object_name(kind):
        return import_function(kind, returns="a network")
    function = _given.get()
    if function is None:
        raise ValueError(
            f"The network {kind.removeprefix(OBJECT)!r} was given as an object and has no name to import: pass its "
            "function again, as in spo.load(path, network=function)."
        )
    return function


def build_own_network(
    name: str,
    function: NetworkFunction,
    observation_spec: ObservationSpec,
    action_spec: ActionSpec,
    dtype: DTypeLike = jnp.float32,
) -> Architecture | Networks:
    """Calls the function and checks its result on shapes. Raises ValueError with one sentence that names the fault.

    Args:
      name: name of the function, for messages.
      function: see `NetworkFunction`.
      observation_spec: shapes and dtypes of an observation.
      action_spec: kind and size of the actions.
      dtype: number format of the default heads behind a torso.
    """
    if isinstance(function, type) and list(inspect.signature(function).parameters)[:2] != list(_ARGUMENTS):
        raise ValueError(
            f"The network {name} is a class: name a function (observation_spec, action_spec) -> module, such as one "
            f"that returns {function.__name__}()."
        )
    built = _call(f"The network {name}", function, observation_spec, action_spec)
    if isinstance(built, nn.Module):
        built = Architecture(built, (), nn.relu, share_torso=True, dtype=dtype)
    if isinstance(built, ActorCritic):
        built = Networks(built)
    if isinstance(built, Architecture):
        _check_torso(name, built.torso, observation_spec)
    elif isinstance(built, Networks):
        _check_actor_critic(name, built.actor_critic, observation_spec, action_spec)
        if built.q_network is not None:
            _check_q_network(name, built.q_network, observation_spec, action_spec)
    else:
        raise ValueError(
            f"The network {name} returned a {type(built).__name__}: return a Flax module (from an observation to a "
            "vector of features), an Architecture, an ActorCritic or Networks of spo.networks."
        )
    return built


def _call(subject: str, function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:
        raise ValueError(f"{subject} raised {quote(error)}.") from None


def _check_torso(name: str, torso: nn.Module, observation_spec: ObservationSpec) -> None:
    subject = f"The torso of the network {name}"
    output, variables = _shapes(
        f"{subject}, called with one observation without a batch axis,",
        lambda: torso.init_with_output(jax.random.key(0), blank(observation_spec)),
    )
    _check_array(subject, output, (None,), "one vector of features", "end with `return jnp.ravel(x)`")
    others = sorted(set(variables) - {"params"})
    if others:
        raise ValueError(
            f"{subject} has variables that are no parameters ({', '.join(others)}), and nothing would update them: use "
            "layers without a state, such as LayerNorm instead of BatchNorm."
        )
    _check_parameters(subject, variables.get("params", {}))


def _check_actor_critic(
    name: str, network: ActorCritic, observation_spec: ObservationSpec, action_spec: ActionSpec
) -> None:
    if not isinstance(network, ActorCritic) or not isinstance(network.distribution, Distribution):
        raise ValueError(
            f"The network {name} must return an ActorCritic whose distribution is a spo.distributions.Distribution, "
            "such as categorical or tanh_gaussian(low, high)."
        )
    mask = jnp.ones(action_spec.num_actions, bool) if isinstance(action_spec, DiscreteActions) else None
    observation = blank(observation_spec)
    params = _shapes(f"`init` of the network {name}", lambda: network.init(jax.random.key(0), observation_spec))
    _check_parameters(f"The network {name}", params)

    actor, critic, both = (f"`{part}` of the network {name}" for part in ("actor", "critic", "both"))
    _check_policy(actor, _shapes(actor, network.actor, params, observation, mask), action_spec)
    _check_array(critic, _shapes(critic, network.critic, params, observation), (), "one value", "write value[0]")
    pair = _shapes(both, network.both, params, observation, mask)
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise ValueError(f"{both} must return (policy, value), got {_describe(pair)}: return both of them.")
    _check_policy(both, pair[0], action_spec)
    _check_array(both, pair[1], (), "one value", "write value[0]")


def _check_q_network(name: str, network: QNetwork, observation_spec: ObservationSpec, action_spec: ActionSpec) -> None:
    if not isinstance(network, QNetwork):
        raise ValueError(
            f"The Q network of {name} is a {type(network).__name__}: return Networks(actor_critic, q_network) with a "
            "QNetwork of spo.networks."
        )
    parts = ("init", "value", "all_values", "values")
    init, value, all_values, values = (f"`{part}` of the Q network of {name}" for part in parts)
    params = _shapes(init, lambda: network.init(jax.random.key(0), observation_spec))
    _check_parameters(f"The Q network of {name}", params)
    observation = blank(observation_spec)
    action = jnp.zeros((), jnp.int32) if isinstance(action_spec, DiscreteActions) else jnp.zeros(action_spec.size)
    found = _shapes(value, network.value, params, observation, action)
    _check_array(value, found, (), "one value", "write value[0]")
    if network.values is not None:
        found = _shapes(values, network.values, params, observation, jnp.stack([action, action, action]))
        _check_array(values, found, (3,), "one value for each of three actions", "return [K] for actions [K, ...]")
    if isinstance(action_spec, DiscreteActions):
        if network.all_values is None:
            raise ValueError(f"{all_values} is None: give a function that returns Q of every discrete action.")
        found = _shapes(all_values, network.all_values, params, observation)
        remedy = "change the size of its last layer"
        _check_array(all_values, found, (action_spec.num_actions,), "one value for each action", remedy)


def _check_policy(subject: str, policy: Any, action_spec: ActionSpec) -> None:
    remedy = "change the size of its last layer"
    if isinstance(action_spec, DiscreteActions):
        _check_array(subject, policy, (action_spec.num_actions,), "one logit for each action", remedy)
    elif isinstance(policy, Gaussian):
        for part in policy:
            _check_array(subject, part, (action_spec.size,), "mean and scale for each dimension", remedy)


def _check_array(subject: str, output: Any, shape: tuple[int | None, ...], meaning: str, remedy: str) -> None:
    """Raises ValueError unless the output is a float32 array; None in `shape` stands for any length.

    Features may have another float type: the heads behind a torso compute their outputs in float32.
    """
    fits = (
        isinstance(output, jax.ShapeDtypeStruct)
        and len(output.shape) == len(shape)
        and all(want in (None, got) for want, got in zip(shape, output.shape, strict=True))
        and jnp.issubdtype(output.dtype, jnp.floating)
    )
    if not fits:
        wanted = ", ".join("F" if length is None else str(length) for length in shape)
        raise ValueError(f"{subject} must return {meaning}, float32[{wanted}], got {_describe(output)}: {remedy}.")
    if output.dtype != jnp.float32 and None not in shape:
        raise ValueError(
            f"{subject} must return {meaning} in float32, got {_describe(output)}: convert it with "
            ".astype(jnp.float32)."
        )


def _check_parameters(subject: str, params: PyTree) -> None:
    for path, leaf in jax.tree.leaves_with_path(params):
        if np.dtype(leaf.dtype) != np.float32:
            raise ValueError(
                f"{subject} has parameters of {leaf.dtype} ({jax.tree_util.keystr(path)}): set param_dtype=jnp.float32."
            )


def _shapes(subject: str, function: Callable[..., Any], *arguments: Any) -> Any:
    return _call(subject, jax.eval_shape, function, *arguments)


def _describe(output: Any) -> str:
    if isinstance(output, jax.ShapeDtypeStruct):
        return f"{output.dtype}{list(output.shape)}"
    return f"a {type(output).__name__}"
