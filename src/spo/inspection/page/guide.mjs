// Explanations for readers who do not know the method.

import { hasFixedColours, NUM_COLOURS } from "./colours.mjs";
import { element, isNarrow, svg } from "./dom.mjs";
import { MOST_PARTICLES } from "./genealogy.mjs";
import { count, resampleSentence } from "./words.mjs";

const TREE = [
  ["A circle is one imagined state", "Before it acts, the agent simulates states that it could reach, and grows a tree of them. Depth 1 is one action ahead. The colour tells the first action of the path."],
  ["The area is the number of visits", "Each simulation walks down the tree and adds one state. It prefers actions that the policy network likes, that have a high value so far, or that were tried seldom."],
  ["Values flow back", "The value of a new state is averaged into all states above it, so that good branches are visited more."],
  ["Visits and values choose the action", "At the end, an action that was visited often, or that has a high value, has a large share of the policy after the search. The action is chosen by these shares."],
];
const COUNTED = "After the last resample, the particles that began with the same action are counted. Their shares are the policy after "
  + "the search";
const READOUTS = {
  last: "At the last depth, the weights of all particles that began with the same action are added up. These sums are the policy "
    + "after the search",
  all_depths: "At every depth, the weights of all particles that began with the same action are added up. The mean of these sums "
    + "over all depths is the policy after the search",
  mean_returns: "For each first action, the mean return of its particles is taken: the better it is, the larger the action's "
    + "share of the policy after the search",
};

/** What each figure beside the state means, by its name. */
export const MEANINGS = {
  "Return so far": "Sum of the rewards of the moves made so far.",
  "Chosen action": "Action that is taken in this state.",
  "Reward of the step": "Reward that the chosen action brought.",
  "Value, by the network": "Sum of future rewards that the value network expects from this state.",
  "Value, by the search": "The same by the search: the mean over its particles, by their weights, of the rewards on the path plus the value at its end; or "
    + "the mean over its visits.",
  "Temperature": "How much better futures gain: with a low one the best few take all the weight, with a high one the policy network "
    + "decides.",
  "Effective particles": "The weight is spread as if over so many equally heavy particles, at the last depth: 1 if one particle has "
    + "all of it.",
  "solved": "Whether the puzzle is solved in this state.",
  "End of the episode": "Whether the episode finished by itself or was cut off by a time limit.",
};

/** The same in a clause, for the values beside the state of a search with particles. */
export const CLAUSES = {
  "Value, by the network": "expected here, before the search",
  "Value, by the search": "mean return of its particles, by weight",
};

/** Figures that only some searches have. */
const FIGURES_OF = { "Value, by the search": ["particles", "tree"], "Temperature": ["particles"], "Effective particles": ["particles"] };

/**
 * Returns the explanation of a decision, or of none. `method` is that of the document; `metrics` are the names of the
 * environment's own figures.
 */
export function drawGuide(decision, actions, method, metrics) {
  const search = decision?.search ?? null;
  const explained = Object.entries(MEANINGS).filter(([name]) => (name === "solved" ? metrics.includes(name)
    : FIGURES_OF[name]?.includes(search?.kind) ?? true));
  const cards = search === null ? networkCards(decision, actions) : search.kind === "tree" ? TREE : particleCards(decision, actions, method);
  return element("div", {},
    element("div", { class: "cards" }, cards.map(([title, text]) =>
      element("section", {}, element("h3", {}, title), element("p", {}, text)))),
    element("details", { class: "glossary" }, element("summary", {}, "The figures beside the state"),
      element("dl", {}, explained.map(([name, text]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, text))))));
}

/** Returns the explanation in one sentence. */
export function leadSentence(decision, actions) {
  const search = decision?.search ?? null;
  if (search === null) return networkCards(decision, actions)[0][1];
  if (search.kind === "tree") return "Each circle is a state that the agent imagined; larger ones were visited more often and count more.";
  const row = search.num_particles > MOST_PARTICLES ? "a group of particles, simulated futures that began with the same action"
    : "a particle, one simulated future";
  return `Each row of circles that are joined by lines is ${row}. A circle is a state on the way. The colour is the first action. `
    + "A larger circle has more weight, and the weight decides the action.";
}

function networkCards(decision, actions) {
  const greedy = decision?.settings.greedy;
  const off = decision?.settings.use_search === false;
  const probability = actions.kind === "discrete"
    ? `The policy network gives each action a probability. ${greedy ? "The most likely action is taken." : "The action is drawn at random with these probabilities."}`
    : "The policy network gives each number of the action a density: high where the number is likely. "
      + (greedy ? "The most likely action is taken." : "The action is drawn at random from them.");
  return [
    [off ? "The search is off" : "This algorithm does not search", probability],
    ["The value", "The value network expects this sum of future rewards from the state. It does not choose the action."],
  ];
}

function particleCards(decision, actions, method) {
  const { search, settings } = decision;
  const resampled = search.resampled.some(Boolean);
  const drawn = settings.greedy ? "the action with the largest share is taken." : "the action is drawn from it.";
  return [
    ["A particle is one imagined future",
      "Before it acts, the agent simulates many short futures. Each of them is a particle: a row of circles that are joined by lines. "
      + "Each circle is a state, and depth 1 is one action ahead. The colour tells the first action."],
    ["The area is the weight", `The weight says how much a future counts. ${startingWeights(search, actions, method)} ${changeOfWeights(method)} A low temperature makes these changes larger.`],
    resampled
      ? ["Resampling keeps the good ones",
        "Soon a few futures have most of the weight, and simulating the others is wasted work. In the shaded gaps the particles are "
        + "drawn anew by weight: heavy ones are copied, light ones are dropped (pale, dashed), and all start with the same weight "
        + "again."]
      : ["No resampling in this search",
        "When a few futures have most of the weight, a search can draw its particles anew: heavy ones are copied, light ones are "
        + `dropped. Not here: ${lowerFirst(resampleSentence(decision, method))}`],
    ["The weights choose the action", `${search.resampled[search.horizon - 1] ? COUNTED : READOUTS[settings.readout] ?? READOUTS.last}; ${drawn}`],
  ];
}

function lowerFirst(text) {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

function startingWeights(search, actions, method) {
  if (actions.kind !== "discrete" || !method?.num_root_candidates) {
    return "The policy network draws the actions, so that likely ones have more particles, and all start with the same weight.";
  }
  return `By its probabilities, the policy network draws ${count(new Set(search.action[0]).size, "first action")} without repetition; one that it finds unlikely starts `
    + "with a small weight.";
}

function changeOfWeights(method) {
  if (method?.weighting === "q_value") return "At each depth a future with a high reward and value gains weight, one with a low one loses it.";
  return "Then a future that turns out better than the value network expected gains weight, a worse one loses it.";
}

// --- Legend ----------------------------------------------------------------------------------------------------------

/**
 * Returns the meaning of the signs that a picture of a search shows. `howEnded` is "solved" or another word, or null;
 * `isSecond`: the colours are those of the first settings.
 */
export function drawLegend(search, layout, actions, howEnded, isSecond) {
  const some = (test) => layout.circles.some(test);
  const isTree = search.kind === "tree";
  const items = [
    [sizes(), isTree ? "larger: visited more often" : "larger: more weight"],
    [thicknesses(), isTree ? "thicker line: visited more often" : "thicker line: more weight"],
    colourItem(layout, actions, isSecond),
    some((circle) => !circle.lives) ? [line("died"), "pale, dashed: dropped, nothing of the result comes from it"] : null,
    some((circle) => circle.justEnded) ? [diamond(), `the episode ends here${howEnded ? `: ${howEnded}` : ""}`] : null,
    some((circle) => circle.ended && !circle.justEnded) ? [hollow(), isTree ? "after the end: nothing more happens" : "after the end: the weight stays, and the share changes as other particles gain or lose"] : null,
    !isTree && search.resampled.some(Boolean) ? [shade(), "resample: heavy particles are copied, light ones dropped"] : null,
  ];
  return element("ul", { class: "legend" }, items.filter(Boolean).map(([sign, text]) => element("li", {}, sign, text)));
}

/** Returns the meaning of the colours. Few actions keep theirs; of many, the likeliest ones have a colour. */
function colourItem(layout, actions, isSecond) {
  if (actions.kind === "discrete" && hasFixedColours(actions.names.length)) {
    return [palette(Math.max(2, actions.names.length), false), "colour: the first action"];
  }
  const numFirst = new Set(layout.circles.map((circle) => circle.first)).size;
  if (numFirst === 1) return [palette(1, false), "colour: the first action"];
  const rank = actions.kind === "discrete" ? `the likeliest ${isSecond ? "with the first settings" : "after the search"}` : "the one that counts most";
  return [palette(Math.min(NUM_COLOURS, numFirst), numFirst > NUM_COLOURS), `colour: the first action; blue: ${rank}${numFirst > NUM_COLOURS ? "; grey: the rest" : ""}`];
}

function palette(amount, hasOthers) {
  const classes = Array.from({ length: amount }, (_, index) => `colour-${index}`);
  if (hasOthers) classes.push("colour-other");
  const width = 10 * classes.length;
  return svg("svg", { class: "sign", width, height: 16, viewBox: `0 0 ${width} 16`, "aria-hidden": "true" },
    classes.map((name, index) => svg("g", { class: `mark ${name}` }, svg("circle", { class: "disc", cx: 10 * index + 5, cy: 8, r: 4.5 }))));
}

function sign(...parts) {
  return svg("svg", { class: "sign colour-0", width: 34, height: 16, viewBox: "0 0 34 16", "aria-hidden": "true" }, ...parts);
}

function sizes() {
  return sign(svg("g", { class: "mark" }, svg("circle", { class: "disc", cx: 7, cy: 8, r: 2.5 }), svg("circle", { class: "disc", cx: 23, cy: 8, r: 7 })));
}

function thicknesses() {
  return sign(...[[4, 1.2], [11, 3.2]].map(([y, width]) => svg("path", { class: "mark-line", d: `M2,${y}H32`, "stroke-width": width })));
}

function line(kind) {
  return sign(svg("path", { class: `mark-line ${kind}`, d: "M2,8H32", "stroke-width": 2 }));
}

function diamond() {
  return sign(svg("g", { class: "mark" }, svg("circle", { class: "disc", cx: 17, cy: 8, r: 3 }), svg("path", { class: "mark-end", d: "M10,8L17,1L24,8L17,15Z" })));
}

function hollow() {
  return sign(svg("path", { class: "mark-line waits", d: "M1,8H20", "stroke-width": 2 }),
    svg("g", { class: "mark waits" }, svg("circle", { class: "disc", cx: 26, cy: 8, r: 6 })));
}

function shade() {
  return sign(svg("rect", { class: "mark-resample", x: 6, y: 0, width: 22, height: 16, rx: 3 }));
}

/** Returns the invitation to look at single circles. */
export function invitation(search) {
  const what = search.kind === "tree" ? "a state" : "a particle";
  if (isNarrow()) return `Tap ${what} of the picture to see its path, its numbers and its state.`;
  return `Point at ${what} of the picture, or press Tab and then arrow keys, to see its path, its numbers and its state. Escape ends it.`;
}
