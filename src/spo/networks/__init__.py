"""The paper's networks as pure functions of a pytree of parameters.

`make_network(environment.observation_spec, environment.action_spec)` returns the paper's actor and critic for that kind
of environment, unless an `Architecture` is given. `torsos` and `heads` contain the Flax modules; `config` contains the
network's options.

The modules are Linen, not NNX: Linen keeps parameters outside the module, in a plain pytree. Parameters can be stacked
over seeds by `vmap`, averaged by one `tree.map` and used in a search, without state to split and merge.
"""

from spo.networks.actor_critic import (
    ActorCritic,
    ActorCriticParams,
    evaluate_both_ends,
    make_network,
    separate_torsos,
    shared_torso,
)
from spo.networks.architectures import (
    Architecture,
    boxoban_architecture,
    cube_architecture,
    mlp_architecture,
    paper_architecture,
)
from spo.networks.q_network import QNetwork, make_q_network

__all__ = [
    "ActorCritic",
    "ActorCriticParams",
    "Architecture",
    "QNetwork",
    "boxoban_architecture",
    "cube_architecture",
    "evaluate_both_ends",
    "make_network",
    "make_q_network",
    "mlp_architecture",
    "paper_architecture",
    "separate_torsos",
    "shared_torso",
]
