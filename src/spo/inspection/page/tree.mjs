// Layout of a search tree: places of its nodes. No drawing.

/** Nodes that are shown at most: the most visited ones. */
export const MOST_NODES = 160;

/**
 * Returns the shown nodes as circles of the same form as those of a genealogy. `members` holds the index of the node,
 * and `row` is the place of a leaf, or the middle of the children's rows.
 */
export function layoutTree(search) {
  const shown = mostVisited(search);
  const children = new Map(shown.map((node) => [node, []]));
  for (const node of shown) if (search.parent[node] >= 0) children.get(search.parent[node]).push(node);
  const depths = new Map();
  const rows = new Map();
  const firsts = new Map();
  let numRows = 0;
  const place = (node, depth, first) => {
    depths.set(node, depth);
    firsts.set(node, first);
    const below = children.get(node).sort((a, b) => compareActions(search, a, b));
    for (const child of below) place(child, depth + 1, depth === 0 ? child : first);
    if (below.length === 0) rows.set(node, numRows++);
    else rows.set(node, (rows.get(below[0]) + rows.get(below[below.length - 1])) / 2);
  };
  place(0, 0, null);
  const total = search.visits[0];
  const index = new Map(shown.filter((node) => node !== 0).map((node, place_) => [node, place_]));
  const circles = [...index.keys()].map((node) => ({
    depth: depths.get(node) - 1,
    row: rows.get(node),
    weight: search.visits[node] / total,
    first: firsts.get(node),
    members: [node],
    ended: search.ended[node],
    justEnded: search.ended[node] && !search.ended[search.parent[node]],
    lives: true,
    parent: search.parent[node] === 0 ? -1 : index.get(search.parent[node]),
  }));
  const numDepths = Math.max(1, ...circles.map((circle) => circle.depth + 1));
  return { circles, numRows: Math.max(1, numRows), numDepths, rootRow: rows.get(0), hidden: search.parent.length - shown.length };
}

/** Returns the nodes from the root to a node. */
export function pathToNode(search, node) {
  const path = [node];
  while (search.parent[path[0]] >= 0) path.unshift(search.parent[path[0]]);
  return path;
}

function mostVisited(search) {
  // A parent has at least the visits of its children and a smaller index, so that it is shown if they are.
  const nodes = search.visits.map((_, node) => node);
  nodes.sort((a, b) => search.visits[b] - search.visits[a] || a - b);
  return nodes.slice(0, MOST_NODES).sort((a, b) => a - b);
}

function compareActions(search, a, b) {
  const first = search.action[a];
  const second = search.action[b];
  return (Array.isArray(first) ? first[0] - second[0] : first - second) || a - b;
}
