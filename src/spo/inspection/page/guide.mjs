// Explanations for readers who do not know the method.

import { element } from "./dom.mjs";

const PARTICLES = [
  ["A particle is one imagined future",
    "Before it acts, the agent imagines many futures. Each circle is one of them at one depth: depth 1 is one action ahead. "
    + "A line leads to the state that it came from. The colour is the first action."],
  ["The area is the weight",
    "The policy network proposes the actions. A future that turns out better than the value network expected gains weight, "
    + "a worse one loses it. A low temperature makes these changes larger."],
  ["Resampling keeps the good ones",
    "Soon a few futures have all the weight, and the others are wasted work. In the shaded gaps particles are drawn anew by "
    + "weight: heavy ones are copied, light ones end, and all start with the same weight again. Lines that died out are faint."],
  ["The weights choose the action",
    "At the end, the weights of all particles that began with the same action are added up. These sums are the policy after "
    + "the search, and the action is drawn from them."],
];
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

/** Returns the explanation of a kind of search. */
export function drawGuide(search) {
  const cards = search === null ? NOTHING : search.kind === "tree" ? TREE : PARTICLES;
  return element("div", { class: "cards" }, cards.map(([title, text]) =>
    element("section", {}, element("h3", {}, title), element("p", {}, text))));
}

/** Returns the meaning of the signs in the picture of a search. */
export function legend(search) {
  if (search.kind === "tree") return "Larger: visited more often. ◇ the episode ends here.";
  const resampled = search.resampled.some(Boolean) ? "Shaded: particles are resampled. Faint: the line died out. " : "";
  return `Larger: more weight. ${resampled}◇ the episode ends here; after it a particle only keeps its weight.`;
}

/** Returns the invitation to look at single circles. */
export function invitation(search) {
  const what = search.kind === "tree" ? "a state" : "a particle";
  return `Point at ${what} of the picture, or press Tab and then arrow keys, to see its path, its numbers and its state.`;
}
