// Tests of numbers and sentences, of the policy's bars and of the live page's document.

import assert from "node:assert/strict";
import { test } from "node:test";

const page = new URL("../../../src/spo/inspection/page/", import.meta.url);
const { actionName, figure, number, percent, promises, whyChosen } = await import(new URL("words.mjs", page));
const { boundOf, hiddenSentence, MOST_BARS, shareAfter, shownActions, triedActions } = await import(new URL("policy_view.mjs", page));
const { describeCube, gridOf, isSolved } = await import(new URL("pictures_view.mjs", page));
const { actionColours, colourClasses, NUM_COLOURS } = await import(new URL("colours.mjs", page));
const { connect, merge } = await import(new URL("live.mjs", page));
const { invitation, leadSentence } = await import(new URL("guide.mjs", page));
const { endOfParticles } = await import(new URL("search_view.mjs", page));

test("numbers have three significant digits", () => {
  assert.equal(number(0.12345), "0.123");
  assert.equal(number(-1.5), "−1.50");
  assert.equal(number(1234.5), "1235");
  assert.equal(number(7), "7");
  assert.equal(number(0.00001), "1.0e−5");
  assert.equal(number(null), "–");
  assert.equal(percent(0.004), "<1 %");
  assert.equal(percent(0.999), ">99 %");
  assert.equal(percent(1), "100 %");
  assert.equal(percent(0), "0 %");
  assert.deepEqual([1, 0.9943, -2].map(figure), ["1.000", "0.994", "−2.000"]);
});

test("bounds are one number or one per dimension", () => {
  assert.deepEqual([boundOf(-1, 0), boundOf(-1, 1)], [-1, -1]);
  assert.deepEqual([boundOf([-1, 0.5], 0), boundOf([-1, 0.5], 1)], [-1, 0.5]);
});

test("actions have names", () => {
  assert.equal(actionName({ kind: "discrete", names: ["up"] }, 0), "up");
  assert.equal(actionName({ kind: "discrete", names: [] }, 3), "action 3");
  assert.equal(actionName({ kind: "continuous" }, [0.5, -1]), "(0.500, −1)");
  assert.equal(actionName({ kind: "continuous" }, [0.5]), "0.500");
});

test("the reason of a choice names shares before and after, resamples and ends", () => {
  const decision = {
    action: 1, value: 0.4, settings: { greedy: false, readout: "last", resample_period: 1 },
    policy: { kind: "discrete", before: [0.9, 0.1], after: [0.25, 0.75] },
    search: { ...oneStep([0, 1, 1, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1, 1], 0.5), horizon: 2, live: [8, 5], resampled: [true, false],
      ess: [2.51, 8], root_actions: [2, 1], parent: [[0, 1, 2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, 1, 1, 1]] },
  };
  const words = whyChosen(decision, { kind: "discrete", names: ["left", "right"] }).join(" ");
  for (const part of ["right was chosen", "Drawn at random: its chance was 75 %", "at the last depth", "10 %", "3 of 8 particles",
    "resampled once: after every depth", "as if over 2.5 of 8 particles", "right promises 1.500", "the most of the 2 actions",
    "network expected 0.400", "From depth 2 on, every particle is a future that began with right"]) {
    assert.ok(words.includes(part), `${part} in: ${words}`);
  }
  const other = whyChosen({ ...decision, action: 0 }, { kind: "discrete", names: ["left", "right"] }).join(" ");
  assert.ok(other.includes("The likeliest was right with 75 %"), other);
  const greedy = whyChosen({ ...decision, settings: { greedy: true } }, { kind: "discrete", names: ["left", "right"] }).join(" ");
  assert.ok(greedy.includes("the largest share") && !greedy.includes("random"), greedy);
});

/** Returns a search of depth 1 in which all particles reach a state of the same value. */
function oneStep(actions, rewards, value) {
  const same = (entry) => [actions.map(() => entry)];
  return { kind: "particles", num_particles: actions.length, horizon: 1, live: [actions.length], resampled: [false], valid: true,
    ess: [actions.length], root_actions: [new Set(actions).size], parent: [actions.map((_, index) => index)], action: [actions],
    reward: [rewards], particle_value: same(value), ended: same(false) };
}

test("an action promises its reward and the value after it, and no value after an end", () => {
  const search = oneStep([0, 0, 1], [1, 3, 0], 10);
  search.ended[0][1] = true;
  assert.deepEqual([...promises(search)], [["0", (1 + 10 + 3) / 2], ["1", 10]]);
  const tree = { kind: "tree", parent: [-1, 0, 0, 1], action: [null, [0.5], [1], [2]], reward: [null, 1, 0, 5], node_value: [0, 2, 4, 9] };
  assert.deepEqual([...promises(tree)], [["[0.5]", 3], ["[1]", 4]]);
  const decision = { action: 0, value: 0, settings: { greedy: false, readout: "last" }, search,
    policy: { kind: "discrete", before: [0.5, 0.5], after: [0.5, 0.5] } };
  const names = { kind: "discrete", names: ["left", "right"] };
  assert.match(whyChosen(decision, names)[0], /mean over its particles.* The weight decides, not the promise\. The value network/);
  const byReturns = { ...decision, settings: { greedy: false, readout: "mean_returns" } };
  assert.match(whyChosen(byReturns, names)[0], /The mean return of whole particles decides, not the promise/);
  assert.match(whyChosen(decision, names)[0], /left promises 7.000 .* Of the 2 actions that were tried, right promises the most: 10.000/);
});

test("the reason of a policy without a search names its chance", () => {
  const words = (policy, settings, actions, action) => whyChosen({ action, settings, policy, search: null }, actions)[0];
  const names = { kind: "discrete", names: ["left", "right"] };
  const policy = { kind: "discrete", before: [0.9, 0.1], after: null };
  assert.equal(words(policy, { greedy: false }, names, 1),
    "right was chosen. Drawn at random: the policy network gave it a chance of 10 %. The likeliest was left with 90 %.");
  assert.equal(words(policy, { greedy: true }, names, 0), "left was chosen: the policy network gives it the largest probability, 90 %.");
  assert.equal(words({ kind: "discrete", before: null, after: null }, { greedy: false }, names, 0), "left was chosen.");
  const continuous = { kind: "continuous", before: [[1, 2]], after: null };
  assert.match(words(continuous, { greedy: false }, { kind: "continuous" }, [0.5]), /^Action 0.500 was chosen: drawn at random/);
  assert.match(words(continuous, { greedy: true }, { kind: "continuous" }, [0.5]), /the most likely action/);
});

test("the chance of a continuous action is the weight of all its particles", () => {
  const search = { ...oneStep([[0.5], [1], [0.5]], [0, 0, 0], 1) };
  const policy = { kind: "continuous", before: [[1]], after: { actions: [[0.5], [1], [0.5]], weights: [0.2, 0.5, 0.3] } };
  const words = whyChosen({ action: [0.5], value: 1, settings: { greedy: false, readout: "last" }, policy, search }, { kind: "continuous" })[0];
  assert.match(words, /its chance was 50 %/);
});

test("the reason of a tree search promises no draw", () => {
  const decision = { action: 0, settings: { greedy: false }, policy: { kind: "discrete", before: [0.5, 0.5], after: [0.25, 0.75] },
    search: { kind: "tree", parent: [-1, 0], action: [null, 0], reward: [null, 0], node_value: [0, 1] } };
  const [chosen, tree] = whyChosen(decision, { kind: "discrete", names: ["left", "right"] });
  assert.ok(chosen.startsWith("left was chosen: its share after the search is 25 %. The likeliest was right with 75 %."), chosen);
  assert.ok(!chosen.includes("random"), chosen);
  assert.equal(tree, "The tree has 2 states. In this state 1 action was tried.");
});

test("the reason names the first actions and why nothing was resampled", () => {
  const search = { ...oneStep([0, 0, 1, 1], [0, 0, 0, 0], 0), horizon: 4, live: [4, 4, 4, 4], resampled: [false, false, false, false],
    root_actions: [2, 2, 2, 2], parent: Array(4).fill([0, 1, 2, 3]) };
  const words = (settings, method) => whyChosen(
    { action: 0, settings, policy: { kind: "discrete", before: [0.5, 0.5], after: [0.5, 0.5] }, search },
    { kind: "discrete", names: ["left", "right"] }, method)[1];
  assert.match(words({ resample_period: 4 }, { num_root_candidates: 2 }), /2 first actions were drawn without repetition .* each is tried by 2 particles\. An unlikely one starts with a small weight/);
  assert.match(words({ resample_period: 4 }, null), /Each particle drew/);
  assert.ok(!words({ resample_period: 4 }, null).includes("repetition"));
  assert.match(words({ resample_period: 4 }, null), /gains weight where reward and value turned out better than expected\./);
  assert.match(words({ resample_period: 4 }, { weighting: "q_value" }), /gains weight where reward and value are high\./);
  assert.match(words({ resample_period: 4 }, null), /resampled every 4 depths, and this search is 4 deep/);
  assert.match(words({ resample_period: null }, null), /Resampling is off/);
  assert.match(words({ resample_period: 1 }, { ess_threshold: 0.5 }), /more than 50 %/);
});

test("the chosen action always has a bar", () => {
  const before = Array.from({ length: 30 }, (_, action) => 30 - action);
  const { shown, others } = shownActions({ before, after: null }, 29);
  assert.equal(shown.length, MOST_BARS);
  assert.ok(shown.includes(29));
  assert.equal(others, 30 - MOST_BARS);
});

test("actions that were tried have bars before untried ones", () => {
  const before = Array.from({ length: 30 }, (_, action) => 30 - action);
  const tried = triedActions(oneStep([20, 25, 25], [0, 0, 0], 0));
  assert.deepEqual([...tried], [20, 25]);
  const { shown, others } = shownActions({ before, after: null }, 20, null, tried);
  assert.ok(shown.includes(20) && shown.includes(25), shown.join());
  assert.equal(hiddenSentence(others, tried, shown), "18 less likely actions not shown. None was tried.");
  assert.equal(hiddenSentence(others, new Set([0, 29]), shown), "18 less likely actions not shown. 1 of them was tried.");
  assert.equal(hiddenSentence(others, null, shown), "18 less likely actions not shown.");
  assert.deepEqual([...triedActions({ kind: "tree", parent: [-1, 0, 1], action: [null, 7, 3] })], [7]);
  assert.equal(triedActions(null), null);
  assert.deepEqual([shareAfter(0, false), shareAfter(0, true), shareAfter(0.25, false)], ["not tried", "0 %", "25 %"]);
});

test("the explanation in one sentence calls a row a particle and a circle a state", () => {
  const names = { kind: "discrete", names: ["left", "right"] };
  const lead = (particles) => leadSentence({ search: { kind: "particles", num_particles: particles } }, names);
  assert.match(lead(8), /^Each row of circles .* is a particle, one simulated future\. A circle is a state/);
  assert.match(lead(65), /a group of particles/);
});

test("a narrow page is told to tap, a wide one to point", () => {
  globalThis.window = { innerWidth: 390 };
  assert.match(invitation({ kind: "particles" }), /^Tap a particle/);
  globalThis.window = { innerWidth: 1280 };
  assert.match(invitation({ kind: "particles" }), /^Point at a particle .* Tab/);
  delete globalThis.window;
});

test("particles that end are called solved where their pictures show it", () => {
  const pictures = { done: { kind: "cube", size: 2, cells: "000011112222333344445555" }, open: { kind: "cube", size: 2, cells: "010011012222333344445555" } };
  const search = { ...oneStep([0, 1, 1], [0, 0, 0], 0), ended: [[true, false, true]], picture: [["done", "open", "done"]] };
  assert.equal(endOfParticles(search, pictures), "solved");
  assert.equal(endOfParticles({ ...search, picture: [["open", "done", "open"]] }, pictures), "not solved");
  assert.equal(endOfParticles({ ...search, picture: [["open", "done", "done"]] }, pictures), null);
  assert.equal(endOfParticles({ ...search, picture: null }, pictures), null);
  const decision = { action: 0, value: 0, settings: { greedy: false }, search: { ...search, live: [1] },
    policy: { kind: "discrete", before: [0.5, 0.5], after: [0.5, 0.5] } };
  const words = (ended) => whyChosen(decision, { kind: "discrete", names: ["left", "right"] }, null, ended)[1];
  assert.match(words("solved"), /2 of 3 particles reached a solved state, which ends the episode\./);
  assert.match(words(null), /2 of 3 particles reached the end of the episode\./);
});

test("heat maps have the shape of the observation", () => {
  assert.deepEqual(gridOf([4, 6], 24), { columns: 6, rows: 4 });
  assert.deepEqual(gridOf([2, 3, 4], 24), { columns: 4, rows: 6 });
  assert.deepEqual(gridOf([50], 50), { columns: 8, rows: 7 });
});

test("pictures of puzzles show if they are solved", () => {
  assert.equal(isSolved({ kind: "cube", size: 2, cells: "000011112222333344445555" }), true);
  assert.equal(isSolved({ kind: "cube", size: 2, cells: "010011012222333344445555" }), false);
  assert.equal(isSolved({ kind: "sokoban", size: 2, cells: "3640" }), false);
  assert.equal(isSolved({ kind: "sokoban", size: 2, cells: "3660" }), true);
  assert.equal(isSolved({ kind: "png" }), null);
});

test("few actions keep their colours, whatever their probabilities", () => {
  assert.deepEqual(actionColours([0.1, 0.7, 0.2]), actionColours([0.5, 0.1, 0.4]));
  const many = Array.from({ length: 12 }, (_, index) => index);
  assert.equal(actionColours(many).get(11), "colour-0");
});

test("a cube is described in words", () => {
  assert.equal(describeCube(2, "000011112222333344445555"), "solved cube");
  assert.equal(describeCube(2, "010011012222333344445555"), "cube with 4 of 6 faces of one colour");
});

test("the first colours are different, later actions are grey", () => {
  const classes = [...colourClasses(Array.from({ length: 12 }, (_, index) => index)).values()];
  assert.equal(new Set(classes).size, NUM_COLOURS + 1);
});

test("an answer replaces steps and drops later ones", () => {
  const data = { pictures: {}, steps: [
    { index: 0, picture: "a", end: null, decision: { action: 1 } }, { index: 1, picture: "b", end: null, decision: { action: 2 } },
    { index: 2, picture: "c", end: null, decision: null },
  ] };
  const step = { index: 1, picture: "b", end: null, decision: { action: 3 } };
  merge(data, { length: 2, steps: [{ index: 0, picture: "a", end: null, decision: null, reward: 1 }, step], pictures: { d: {} } });
  assert.equal(data.steps.length, 2);
  assert.equal(data.steps[0].decision.action, 1, "an answer without a decision keeps that of the same state");
  assert.equal(data.steps[0].reward, 1);
  assert.equal(data.steps[1].decision.action, 3);
  assert.ok("d" in data.pictures);
});

test("a compilation is announced while a search waits for it", async () => {
  let finish;
  globalThis.fetch = (path) => (path === "/api/status"
    ? Promise.resolve({ ok: true, json: async () => ({ compiling: true, queue: 2 }) })
    : new Promise((resolve) => { finish = () => resolve({ ok: true, json: async () => ({ length: 1, steps: [], pictures: {} }) }); }));
  const said = [];
  const live = connect("secret", "tab", (text) => { said.push(text); if (text !== null) finish(); });
  await live.search(0, {}, 0);
  assert.match(said[0], /^Compiling these settings.* 2 requests wait behind it\.$/);
  assert.deepEqual(said.slice(1), [null], "and nothing is said after the answer");
});

test("a server that has ended is a sentence", async () => {
  globalThis.fetch = async () => { throw new TypeError("Failed to fetch"); };
  await assert.rejects(connect("secret", "tab", () => {}).undo(), /The server does not answer. If it has ended, start/);
});

test("requests carry the token, and a refused one is an error with the server's sentence", async () => {
  const sent = [];
  globalThis.fetch = async (path, request) => {
    sent.push([path, request]);
    return path === "/api/undo"
      ? { ok: false, status: 400, json: async () => ({ error: "there is no step to take back." }) }
      : { ok: true, json: async () => ({ length: 1, steps: [], pictures: {} }) };
  };
  const live = connect("secret", "tab", () => {});
  await live.search(2, { horizon: 4 }, 7);
  assert.equal(sent[0][0], "/api/search");
  assert.equal(sent[0][1].headers["X-Spo-Token"], "secret");
  assert.equal(sent[0][1].headers["X-Spo-Session"], "tab");
  assert.deepEqual(JSON.parse(sent[0][1].body), { index: 2, settings: { horizon: 4 }, seed: 7 });
  await assert.rejects(live.undo(), /no step to take back/);
});
