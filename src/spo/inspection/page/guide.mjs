// Explanations for readers who do not know the method.

import { hasFixedColours } from "./colours.mjs";
import { element, svg } from "./dom.mjs";
import { count, resampleSentence } from "./words.mjs";

const TREE = [
  ["A circle is one imagined state", "The agent grows a tree of states that it could reach. Depth 1 is one action ahead. The colour is the first action."],
  ["The area is the number of visits", "Each simulation walks down the tree and adds one state. It prefers actions that the policy network likes, that have a high value so far, or that were tried seldom."],
  ["Values flow back", "The value of a new state is averaged into all states above it, so that good branches are visited more."],
  ["The visits choose the action", "At the end, the visits and values at the root are the policy after the search."],
];
const NOTHING = [
  ["This algorithm does not search", "The policy network gives each action a probability, and the action is drawn from them."],
  ["The value", "The value network estimates the sum of future rewards from this state."],
];
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
  "Value, by the search": "The same by the search: mean return of its particles, or of its visits.",
  "Temperature": "How strictly the search prefers better futures: low is strict, high keeps to the policy network.",
  "Effective particles": "How many particles of equal weight would carry as much information, at the last depth.",
  "solved": "Whether the puzzle is solved in this state.",
  "End of the episode": "Whether the episode finished by itself or was cut off by a time limit.",
};

/** Returns the explanation of a decision, or of none. `method` is that of the document. */
export function drawGuide(decision, actions, method) {
  const search = decision?.search ?? null;
  const cards = search === null ? NOTHING : search.kind === "tree" ? TREE : particleCards(decision, actions, method);
  return element("div", {},
    element("div", { class: "cards" }, cards.map(([title, text]) =>
      element("section", {}, element("h3", {}, title), element("p", {}, text)))),
    element("details", { class: "glossary" }, element("summary", {}, "The figures beside the state"),
      element("dl", {}, Object.entries(MEANINGS).map(([name, text]) =>
        element("div", {}, element("dt", {}, name), element("dd", {}, text))))));
}

/** Returns the explanation in one sentence. */
export function leadSentence(search) {
  if (search === null) return "The policy network gives each action a probability, and the action is drawn from them.";
  if (search.kind === "tree") return "Each circle is a state that the agent imagined; larger ones were visited more often and count more.";
  return "Each circle is one imagined future; the colour is its first action. Larger circles weigh more, and the weight decides the action.";
}

function particleCards(decision, actions, method) {
  const { search, settings } = decision;
  const resampled = search.resampled.some(Boolean);
  const drawn = settings.greedy ? "the action with the largest share is taken." : "the action is drawn from it.";
  return [
    ["A particle is one imagined future",
      "Before it acts, the agent imagines many futures. Each circle is one of them at one depth: depth 1 is one action ahead. "
      + "A line leads to the state that it came from. The colour is the first action."],
    ["The area is the weight", `${startingWeights(search, actions, method)} ${changeOfWeights(method)} A low temperature makes these changes larger.`],
    resampled
      ? ["Resampling keeps the good ones",
        "Soon a few futures have all the weight, and the others are wasted work. In the shaded gaps particles are drawn anew by "
        + "weight: heavy ones are copied, light ones end, and all start with the same weight again. Lines that died out are dashed."]
      : ["No resampling in this search",
        `A search can draw its particles anew by weight: heavy ones are copied, light ones dropped. ${resampleSentence(decision, method)}`],
    ["The weights choose the action", `${READOUTS[settings.readout] ?? READOUTS.last}; ${drawn}`],
  ];
}

function startingWeights(search, actions, method) {
  if (actions.kind !== "discrete" || !method?.num_root_candidates) {
    return "The policy network draws the actions, so that likely ones have more particles, and all start with the same weight.";
  }
  return `The policy network draws ${count(new Set(search.action[0]).size, "different first action")}. Its probability for an action, `
    + "divided by the action's chance to be drawn at all, is the starting weight: unlikely actions start light.";
}

function changeOfWeights(method) {
  if (method?.weighting === "q_value") return "At each depth a future with a high reward and value gains weight, one with a low one loses it.";
  return "Then a future that turns out better than the value network expected gains weight, a worse one loses it.";
}

// --- Legend ----------------------------------------------------------------------------------------------------------

/** Returns the meaning of the signs that a picture of a search shows. `howEnded` is "solved" or another word, or null. */
export function drawLegend(search, layout, actions, howEnded) {
  const some = (test) => layout.circles.some(test);
  const isTree = search.kind === "tree";
  const items = [
    [sizes(), isTree ? "larger: visited more often" : "larger: more weight"],
    some((circle) => !circle.lives) ? [line("died"), "died out: no particle of the result descends from it"] : null,
    some((circle) => circle.justEnded) ? [diamond(), `the episode ends here${howEnded ? `: ${howEnded}` : ""}`] : null,
    some((circle) => circle.ended && !circle.justEnded) ? [hollow(), isTree ? "after the end" : "after the end: keeps its weight"] : null,
    !isTree && search.resampled.slice(0, -1).some(Boolean) ? [shade(), "particles are resampled"] : null,
    actions.kind === "discrete" && hasFixedColours(actions.names.length)
      ? null : [disc(), "blue: the likeliest first action in this step"],
  ];
  return element("ul", { class: "legend" }, items.filter(Boolean).map(([sign, text]) => element("li", {}, sign, text)));
}

function sign(...parts) {
  return svg("svg", { class: "sign colour-0", width: 34, height: 16, viewBox: "0 0 34 16", "aria-hidden": "true" }, ...parts);
}

function sizes() {
  return sign(svg("g", { class: "mark" }, svg("circle", { class: "disc", cx: 7, cy: 8, r: 2.5 }), svg("circle", { class: "disc", cx: 23, cy: 8, r: 7 })));
}

function disc() {
  return sign(svg("g", { class: "mark" }, svg("circle", { class: "disc", cx: 17, cy: 8, r: 6 })));
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
  return `Point at ${what} of the picture, or press Tab and then arrow keys, to see its path, its numbers and its state. Escape ends it.`;
}
