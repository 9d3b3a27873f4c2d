// Layout of a genealogy: places of particles, lines to their parents, lines that died out. No drawing.

/** More particles than this are folded by their first action. */
export const MOST_PARTICLES = 64;

/** Rows of a folded genealogy. Further first actions share the last row, under the key OTHERS. */
export const MOST_ROWS = 24;
export const OTHERS = Number.MAX_SAFE_INTEGER;

/**
 * Returns rows of circles and the lines between them.
 *
 * A circle is {depth, row, weight, first, members, ended, justEnded, lives, parent}: `first` is the key of its first
 * action, `members` are indices of particles at that depth, `lives` is false if none of its descendants is in the
 * read-out, and `parent` is the index of its parent among the circles, or -1 for the root.
 */
export function layoutGenealogy(search, isDiscrete) {
  const folded = search.num_particles > MOST_PARTICLES;
  const all = firstActions(search, isDiscrete);
  const firsts = folded ? joinLightest(search, all) : all;
  const lives = survivors(search);
  const layout = folded ? foldByFirstAction(search, firsts, lives) : placeParticles(search, firsts, lives);
  return { ...layout, folded, firsts };
}

/** Returns the key of the first action of every particle at every depth: the action, or the number of its sample. */
export function firstActions(search, isDiscrete) {
  const firsts = [];
  for (let depth = 0; depth < search.horizon; depth++) {
    firsts.push(search.parent[depth].map((parent, particle) => {
      if (depth > 0) return firsts[depth - 1][parent];
      return isDiscrete ? search.action[0][particle] : particle;
    }));
  }
  return firsts;
}

/** Returns first actions of which only the heaviest have a key of their own. Weights are counted over all depths. */
function joinLightest(search, firsts) {
  const weights = new Map();
  firsts.forEach((row, depth) => row.forEach((first, particle) => {
    weights.set(first, (weights.get(first) ?? 0) + (search.weight[depth][particle] ?? 0));
  }));
  if (weights.size <= MOST_ROWS) return firsts;
  const ranked = [...weights.entries()].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([first]) => first);
  const kept = new Set(ranked.slice(0, MOST_ROWS - 1));
  return firsts.map((row) => row.map((first) => (kept.has(first) ? first : OTHERS)));
}

/** Returns for every particle at every depth if one of its descendants is in the read-out. */
export function survivors(search) {
  const lives = search.parent.map((row) => row.map(() => false));
  for (const particle of search.survivor) lives[search.horizon - 1][particle] = true;
  for (let depth = search.horizon - 1; depth > 0; depth--) {
    search.parent[depth].forEach((parent, particle) => {
      if (lives[depth][particle]) lives[depth - 1][parent] = true;
    });
  }
  return lives;
}

/** Returns the indices of a particle and its ancestors, from depth 0 to `depth`. */
export function pathTo(search, depth, particle) {
  const path = [particle];
  for (let above = depth; above > 0; above--) path.unshift(search.parent[above][path[0]]);
  return path;
}

/**
 * Returns the indices of a particle from depth 0 to the last depth that it has: its ancestors, itself, and its heaviest copy at each
 * later depth. `copies` is the largest number of copies at one of those depths.
 */
export function lineOf(search, depth, particle) {
  const line = pathTo(search, depth, particle);
  let copies = 1;
  for (let below = depth + 1; below < search.horizon; below++) {
    const children = search.parent[below].flatMap((parent, child) => (parent === line[below - 1] ? [child] : []));
    if (children.length === 0) break;
    copies = Math.max(copies, children.length);
    line.push(children.reduce((best, child) => (search.weight[below][child] > search.weight[below][best] ? child : best)));
  }
  return { line, copies };
}

/** Returns the first actions, the one with the largest weight at the last depth first. */
export function rankFirstActions(search, firsts) {
  const last = search.horizon - 1;
  const weights = new Map(firsts[0].map((first) => [first, 0]));
  firsts[last].forEach((first, particle) => weights.set(first, weights.get(first) + search.weight[last][particle]));
  return [...weights.entries()].sort((a, b) => b[1] - a[1] || a[0] - b[0]).map(([first]) => first);
}

function placeParticles(search, firsts, lives) {
  const circles = [];
  const rowOf = [];
  let start = 0;
  for (let depth = 0; depth < search.horizon; depth++) {
    const order = search.parent[depth].map((_, particle) => particle);
    const height = (particle) => (depth === 0 ? firsts[0][particle] : rowOf[depth - 1][search.parent[depth][particle]]);
    order.sort((a, b) => height(a) - height(b) || a - b);
    rowOf.push([]);
    order.forEach((particle, row) => { rowOf[depth][particle] = row; });
    search.parent[depth].forEach((parent, particle) => {
      const ended = search.ended[depth][particle];
      circles.push({
        depth,
        row: rowOf[depth][particle],
        weight: search.weight[depth][particle] ?? 0,
        first: firsts[depth][particle],
        members: [particle],
        ended,
        justEnded: ended && !(depth > 0 && search.ended[depth - 1][parent]),
        lives: lives[depth][particle],
        parent: depth === 0 ? -1 : start - search.num_particles + parent,
      });
    });
    start += search.num_particles;
  }
  return { circles, numRows: search.num_particles };
}

function foldByFirstAction(search, firsts, lives) {
  const rows = new Map([...new Set(firsts[0])].sort((a, b) => a - b).map((first, row) => [first, row]));
  const circles = [];
  let above = new Map();
  for (let depth = 0; depth < search.horizon; depth++) {
    const groups = new Map();
    firsts[depth].forEach((first, particle) => {
      if (!groups.has(first)) groups.set(first, []);
      groups.get(first).push(particle);
    });
    const here = new Map();
    for (const [first, members] of groups) {
      const parent = above.get(first) ?? -1;
      const ended = members.some((particle) => search.ended[depth][particle]);
      here.set(first, circles.length);
      circles.push({
        depth,
        row: rows.get(first),
        weight: members.reduce((sum, particle) => sum + (search.weight[depth][particle] ?? 0), 0),
        first,
        members,
        ended,
        justEnded: ended && !(parent >= 0 && circles[parent].ended),
        lives: members.some((particle) => lives[depth][particle]),
        parent,
      });
    }
    above = here;
  }
  return { circles, numRows: rows.size };
}
