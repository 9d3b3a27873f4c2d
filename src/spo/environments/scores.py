"""The number that people report for each environment, in words. It is the mean return where nothing else is said."""

_OF_FAMILY = {
    "rubiks_cube": "share of solved cubes",
    "sokoban": "share of solved levels",
    "boxoban": "share of solved levels",
    "playground": "return, at most 1000",
    "xminigrid": "return, at most 1: 1 - 0.9 steps / limit",
}
_OF_NAME = {
    "craftax/classic": "return, in % of 22 achievements",
    "craftax/full": "return, in % of 226",
    "gymnax/Acrobot-v1": "return: minus the steps",
    "gymnax/CartPole-v1": "return, at most 500",
    "gymnax/Catch-bsuite": "return, 1 or -1",
    "gymnax/MountainCar-v0": "return: minus the steps",
    "gymnax/MountainCarContinuous-v0": "return, 90 counts as solved",
    "gymnax/Pendulum-v1": "return, at most 0",
    "jumanji/bin_pack": "share of the volume used",
    "jumanji/cvrp": "return: minus the length",
    "jumanji/flat_pack": "share of the grid covered",
    "jumanji/game_2048": "sum of the merged tiles",
    "jumanji/graph_coloring": "return: minus the colours",
    "jumanji/knapsack": "value of the packed items",
    "jumanji/maze": "share of solved mazes",
    "jumanji/minesweeper": "number of safe cells opened",
    "jumanji/rubiks_cube": "share of solved cubes",
    "jumanji/rubiks_cube_partly_scrambled": "share of solved cubes",
    "jumanji/snake": "number of fruits",
    "jumanji/sudoku": "share of solved boards",
    "jumanji/sudoku_very_easy": "share of solved boards",
    "jumanji/tsp": "return: minus the length",
    "pgx/2048": "sum of the merged tiles",
}


def score_of(name: str) -> str:
    """Returns the number that people report for an environment, in words."""
    return _OF_NAME.get(name) or _OF_FAMILY.get(name.partition("/")[0], "return")


__all__ = ["score_of"]
