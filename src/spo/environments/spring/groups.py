"""Links with identical structure, which share their code: one group per place in the tree of links."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.spring.arithmetic import Number
from spo.environments.spring.system import Link, System
from spo.types import Array, Float


class Group(NamedTuple):
    """Links with the same place in the tree of links. A constant is a float, or an array [members]."""

    members: tuple[int, ...]
    parent: int | None  # the group of the parents: one parent per member, or one for all; None is the ground
    link: Link


def group_links(system: System) -> tuple[Group, ...]:
    """Groups of a system's links, from the roots outwards.

    Siblings with equal limbs form a group if there are as many of them as the width, the largest power of two with
    such siblings. All other links are alone in their groups.
    """
    children: list[list[int]] = [[] for _ in range(-1, len(system.links))]
    for child, parent in enumerate(system.parents):
        children[1 + parent].append(child)

    def limb(link: int) -> Any:
        """A description of a link and all links attached to it, equal for limbs that may share their code."""
        return jax.tree.structure(system.links[link]), tuple(map(limb, children[1 + link]))

    def sort_siblings(siblings: Sequence[int]) -> list[list[int]]:
        """Siblings with equal limbs."""
        kinds: dict[Any, list[int]] = {}
        for sibling in siblings:
            kinds.setdefault(limb(sibling), []).append(sibling)
        return list(kinds.values())

    sizes = [len(alike) for siblings in children[1:] for alike in sort_siblings(siblings)]
    width = max((size for size in sizes if size & (size - 1) == 0), default=1)
    places: list[tuple[tuple[int, ...], int | None]] = [((root,), None) for root in children[0]]
    for index, (members, _) in enumerate(places):  # the list grows during the loop
        if len(members) > 1:
            offspring = (children[1 + member] for member in members)
            places += [(siblings, index) for siblings in zip(*offspring, strict=True)]
            continue
        for alike in sort_siblings(children[1 + members[0]]):
            split = [tuple(alike)] if len(alike) == width else [(sibling,) for sibling in alike]
            places += [(siblings, index) for siblings in split]
    return tuple(
        Group(members, parent, _merge_links([system.links[member] for member in members])) for members, parent in places
    )


def group_width(groups: Sequence[Group]) -> int:
    """Number of members of the largest group."""
    return max(len(group.members) for group in groups)


def spread_constants(groups: Sequence[Group], like: Float[Array, " B*W"]) -> list[Group]:
    """Replaces constants that differ between members by arrays with the shape of `like`.

    The arrays are made of selections, because a kernel cannot capture constant arrays.
    """
    member = jax.lax.iota(jnp.int32, len(like)) & (group_width(groups) - 1)
    spread: dict[tuple[float, ...], Array] = {}

    def array(constant: Number) -> Number:
        if isinstance(constant, float):
            return constant
        key = tuple(constant.tolist())
        if key not in spread:
            spread[key] = jnp.full_like(like, key[0])
            for index, number in enumerate(key[1:], start=1):
                spread[key] = jnp.where(member == index, jnp.full_like(like, number), spread[key])
        return spread[key]

    return [group._replace(link=jax.tree.map(array, group.link)) for group in groups]


def _merge_links(links: Sequence[Link]) -> Link:
    """One link with the constants of all: a float where they agree, an array [members] where they differ."""
    return jax.tree.map(lambda *numbers: numbers[0] if len(set(numbers)) == 1 else np.array(numbers), *links)
