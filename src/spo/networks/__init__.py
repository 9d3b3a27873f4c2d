"""The paper's networks as pure functions of a pytree of parameters.

`make_network(environment.observation_spec, environment.action_spec)` returns the paper's actor and critic for that kind
of environment, unless an `Architecture` is given. `torsos` and `heads` contain the Flax modules; `config` contains the
network's options; `own` accepts networks that a user has written.

The modules are Linen, not NNX: Linen keeps parameters outside the module, in a plain pytree. Parameters can be stacked
over seeds by `vmap`, averaged by one `tree.map` and used in a search, without state to split and merge.
"""

from spo.networks.actor_critic import evaluate_both_ends, make_network, separate_torsos, shared_torso
from spo.networks.architectures import (
    Architecture,
    boxoban_architecture,
    cube_architecture,
    default_architecture,
    image_architecture,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.contract import ActorCritic, ActorCriticParams, Networks, QNetwork
from spo.networks.q_network import make_q_network
from spo.networks.rounding import round_as_read

__all__ = [
    "ActorCritic",
    "ActorCriticParams",
    "Architecture",
    "Networks",
    "QNetwork",
    "boxoban_architecture",
    "cube_architecture",
    "default_architecture",
    "evaluate_both_ends",
    "image_architecture",
    "make_network",
    "make_q_network",
    "mlp_architecture",
    "paper_architecture",
    "round_as_read",
    "separate_torsos",
    "shared_torso",
]
