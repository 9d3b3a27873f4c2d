"""Approximators: the paper's networks as pure `init` and `apply` functions on a pytree of parameters.

`make_network(environment.observation_spec, environment.action_spec)` gives the actor and critic of the paper for that
kind of world; an `Architecture` says otherwise. `torsos` and `heads` hold the Flax modules they are built of.

The modules are Linen, not NNX: Linen keeps parameters outside the module, in a plain pytree, which is what a functional
library wants. They can be stacked over seeds by `vmap`, averaged by one `tree.map` and closed over by a search, with no
state to split off and merge back.
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
