"""Links with identical structure, which share their code: one group per place in the tree of links."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from spo.environments.spring.arithmetic import Number
from spo.environments.spring.system import Link, System
from spo.types import Array, Float


class Group(NamedTuple):
    """Links with the same place in the tree of links. A constant is a float, or an array [members]."""

    members: tuple[int, ...]
    parent: int | None  # the group of the parents: one parent per member, or one for all
    link: Link


def group_links(system: System) -> tuple[Group, ...]:
    """Groups of a system's links, from the roots outwards. Raises ValueError for limbs that are not identical."""
    children = [
        [child for child, parent in enumerate(system.parents) if parent == link]
        for link in range(-1, len(system.links))
    ]
    places: list[tuple[tuple[int, ...], int | None]] = [((root,), None) for root in children[0]]
    for index, (members, _) in enumerate(places):  # the list grows during the loop
        offspring = [children[1 + member] for member in members]
        if len(members) == 1:
            places += [(tuple(offspring[0]), index)] if offspring[0] else []
        elif len(set(map(len, offspring))) > 1:
            raise ValueError("its limbs have different numbers of links")
        else:
            places += [(siblings, index) for siblings in zip(*offspring, strict=True)]
    sizes = sorted({len(members) for members, _ in places})
    if len(set(sizes) - {1}) > 1 or sizes[-1] & (sizes[-1] - 1):
        raise ValueError(f"its limbs come in groups of {' and '.join(map(str, sizes))}, not in one power of two")
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
    if len({jax.tree.structure(link) for link in links}) > 1:
        raise ValueError("its limbs differ in joints, motors or contacts")
    return jax.tree.map(lambda *numbers: numbers[0] if len(set(numbers)) == 1 else np.array(numbers), *links)
