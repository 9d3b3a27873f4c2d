// Tests of the layout of genealogies and trees. `tests/inspection/test_scripts.py` runs them.

import assert from "node:assert/strict";
import { test } from "node:test";

const page = new URL("../../../src/spo/inspection/page/", import.meta.url);
const { firstActions, layoutGenealogy, lineOf, MOST_ROWS, OTHERS, pathTo, rankFirstActions, survivors } =
  await import(new URL("genealogy.mjs", page));
const { rankActions } = await import(new URL("colours.mjs", page));
const { layoutTree, MOST_NODES, pathToNode } = await import(new URL("tree.mjs", page));
const { meanValues } = await import(new URL("curves_view.mjs", page));
const { largestRadius, neighbour, placement, radius } = await import(new URL("circles_view.mjs", page));

// Particles 0 and 1 begin with action 5, particle 2 with action 3. After depth 0 a resample copies 1 twice and drops 0.
const search = {
  kind: "particles", num_particles: 3, horizon: 2, parent: [[0, 1, 2], [1, 1, 2]], action: [[5, 5, 3], [0, 1, 2]],
  weight: [[0.1, 0.6, 0.3], [0.5, 0.3, 0.2]], ended: [[false, false, true], [false, false, true]],
  resampled: [true, false], survivor: [0, 1, 2], live: [2, 2],
};

test("first actions follow the parents", () => {
  assert.deepEqual(firstActions(search, true), [[5, 5, 3], [5, 5, 3]]);
  assert.deepEqual(firstActions(search, false), [[0, 1, 2], [1, 1, 2]]);
  assert.deepEqual(pathTo(search, 1, 0), [1, 0]);
});

test("a particle is followed from its first action to its heaviest copy, or to the depth where it was dropped", () => {
  const swapped = { ...search, weight: [search.weight[0], [0.3, 0.5, 0.2]] };
  assert.deepEqual(lineOf(search, 0, 1), { line: [1, 0], copies: 2 });
  assert.deepEqual(lineOf(swapped, 0, 1), { line: [1, 1], copies: 2 });
  assert.deepEqual(lineOf(search, 1, 1), { line: [1, 1], copies: 1 }, "the copy that is pointed at, not the heaviest");
  assert.deepEqual(lineOf(search, 0, 0), { line: [0], copies: 1 });
});

test("a line without descendants has died out", () => {
  assert.deepEqual(survivors(search), [[false, true, true], [true, true, true]]);
  assert.deepEqual(survivors({ ...search, survivor: [2, 2, 2] }), [[false, false, true], [false, false, true]]);
});

test("particles are sorted by first action, and below that by their parents", () => {
  const { circles, numRows, folded } = layoutGenealogy(search, true);
  assert.equal(folded, false);
  assert.equal(numRows, 3);
  assert.deepEqual(circles.map((circle) => circle.row), [1, 2, 0, 1, 2, 0]);
  assert.deepEqual(circles.map((circle) => circle.parent), [-1, -1, -1, 1, 1, 2]);
  assert.deepEqual(circles.map((circle) => circle.justEnded), [false, false, true, false, false, false]);
  for (const depth of [0, 1]) {
    const rows = circles.filter((circle) => circle.depth === depth).map((circle) => circle.row).sort();
    assert.deepEqual(rows, [0, 1, 2], "no two circles share a place");
  }
});

test("more than 64 particles are folded by their first action", () => {
  const many = 65;
  const row = Array.from({ length: many }, (_, index) => index);
  const large = {
    ...search, num_particles: many, parent: [row, row.map(() => 1)], action: [row.map((index) => index % 4), row],
    weight: [row.map(() => 1 / many), row.map(() => 1 / many)], ended: [row.map(() => false), row.map(() => false)],
    survivor: row,
  };
  const { circles, numRows, folded } = layoutGenealogy(large, true);
  assert.equal(folded, true);
  assert.equal(numRows, 4);
  assert.equal(circles.length, 5, "four groups, then one");
  assert.deepEqual(circles.map((circle) => circle.members.length), [17, 16, 16, 16, 65]);
  assert.deepEqual(circles.map((circle) => circle.lives), [false, true, false, false, true]);
  assert.ok(Math.abs(circles[4].weight - 1) < 1e-9);
  assert.equal(circles[4].parent, 1);
});

test("a folded genealogy has few rows, also if all first actions are different", () => {
  const many = 256;
  const row = Array.from({ length: many }, (_, index) => index);
  const large = {
    ...search, num_particles: many, horizon: 1, parent: [row], action: [row.map((index) => [index])],
    weight: [row.map((index) => (2 * index + 1) / many ** 2)], ended: [row.map(() => false)], survivor: row,
  };
  const { circles, numRows } = layoutGenealogy(large, false);
  assert.equal(numRows, MOST_ROWS);
  assert.deepEqual(circles.filter((circle) => circle.first === OTHERS).map((circle) => circle.members.length), [many - MOST_ROWS + 1]);
  assert.ok(circles.some((circle) => circle.first === many - 1), "the heaviest keep their own rows");
  assert.ok(Math.abs(circles.reduce((sum, circle) => sum + circle.weight, 0) - 1) < 1e-9);
});

test("the likeliest first action comes first", () => {
  const firsts = firstActions(search, true);
  assert.deepEqual(rankFirstActions(search, firsts), [5, 3]);
  assert.deepEqual(rankActions([0.1, 0.2, 0.6, 0.1]), [2, 1, 0, 3]);
});

test("the area of a circle is in proportion to the weight", () => {
  assert.ok(Math.abs(radius(0.8) ** 2 / radius(0.2) ** 2 - 4) < 1e-9);
  assert.ok(radius(0) > 0, "a particle without weight stays in sight");
});

test("depths follow each other, and a resample takes more room", () => {
  const place = placement(layoutGenealogy(search, true), 2, search.resampled, 600);
  assert.ok(place.x[1] > place.x[0]);
  assert.ok(place.width >= 600);
  const long = placement(layoutGenealogy(search, true), 32, Array(32).fill(false), 300);
  assert.ok(long.width > 700, "many depths scroll instead of getting too narrow");
});

test("a resample after the last depth has room behind it", () => {
  const layout = layoutGenealogy(search, true);
  const [with_, without] = [[true, true], [true, false]].map((resampled) => placement(layout, 2, resampled, 600));
  assert.equal(with_.width, without.width);
  assert.ok(with_.width - with_.x[1] > without.width - without.x[1] + 40);
});

test("names of first actions have room before depth 1", () => {
  const place = placement(layoutGenealogy(search, true), 2, [false, false], 200, null, 88);
  assert.ok(place.x[0] - place.largest - place.root.x > 88, place.x[0]);
});

test("circles of neighbouring depths do not touch", () => {
  const alone = { ...search, num_particles: 1, horizon: 32, parent: Array(32).fill([0]), action: Array(32).fill([0]),
    weight: Array(32).fill([1]), ended: Array(32).fill([false]), survivor: [0] };
  const place = placement(layoutGenealogy(alone, true), 32, Array(32).fill(false), 300);
  assert.ok(2 * radius(1, place.largest) < place.x[1] - place.x[0], place.largest);
});

test("the mean value of a depth is that of its running particles, by their weights", () => {
  const values = [[1, 2, 50], [null, 3, 50]];
  assert.deepEqual(meanValues({ ...search, particle_value: values }).map((value) => Math.round(1e6 * value) / 1e6),
    [1.857143, 1.125]);
  const over = search.ended.map((row) => row.map(() => true));
  assert.deepEqual(meanValues({ ...search, particle_value: values, ended: over }), [null, null]);
});

test("arrow keys lead to parents, children and neighbours", () => {
  const layout = layoutGenealogy(search, true);
  assert.equal(neighbour(layout, 3, "ArrowLeft"), 1);
  assert.equal(neighbour(layout, 1, "ArrowRight"), 3, "the heaviest child");
  assert.equal(neighbour(layout, 0, "ArrowUp"), 2);
  assert.equal(neighbour(layout, 0, "ArrowDown"), 1);
  assert.equal(neighbour(layout, 2, "ArrowUp"), 2, "nothing is above the first row");
  assert.equal(neighbour(layout, 0, "a"), null);
});

const tree = {
  kind: "tree", parent: [-1, 0, 0, 1, 1], action: [null, 2, 0, 1, 3], visits: [5, 3, 1, 1, 1],
  ended: [false, false, true, false, false],
};

test("a tree has its leaves in rows of their own", () => {
  const { circles, numRows, numDepths } = layoutTree(tree);
  assert.equal(numRows, 3);
  assert.equal(numDepths, 2);
  assert.deepEqual(circles.map((circle) => circle.row), [1.5, 0, 1, 2], "ordered by action, parents in the middle");
  assert.deepEqual(circles.map((circle) => circle.parent), [-1, -1, 0, 0]);
  assert.deepEqual(pathToNode(tree, 4), [0, 1, 4]);
});

test("of a large tree the most visited states are shown, with their parents", () => {
  const count = 2 * MOST_NODES;
  const parent = Array.from({ length: count }, (_, node) => Math.floor((node - 1) / 2));
  parent[0] = -1;
  const visits = parent.map(() => 1);
  for (let node = count - 1; node > 0; node--) visits[parent[node]] += visits[node];
  const large = { kind: "tree", parent, action: parent.map((_, node) => node % 2), visits, ended: parent.map(() => false) };
  const { circles, hidden } = layoutTree(large);
  assert.equal(circles.length, MOST_NODES - 1);
  assert.equal(hidden, count - MOST_NODES);
  for (const circle of circles) assert.ok(circle.parent === -1 || circles[circle.parent].depth === circle.depth - 1);
});

test("neighbours do not touch, and circles with room are large", () => {
  const place = (rows, weights) => rows.map((row, index) => ({ depth: 0, row, weight: weights[index], justEnded: false }));
  const close = largestRadius(place([0, 1], [0.5, 0.5]), 20);
  assert.ok(2 * radius(0.5, close) <= 20, close);
  const light = largestRadius(place([0, 1], [1, 0]), 20);
  assert.ok(radius(1, light) + radius(0, light) <= 20, light);
  assert.equal(largestRadius(place([0, 4], [0.9, 0.1]), 20), 20);
  const ended = place([0, 1], [0.5, 0.5]).map((circle) => ({ ...circle, justEnded: true }));
  assert.ok(largestRadius(ended, 20) < close);
});
