// Colours of first actions. The style sheet defines them, for light and for dark pages. They can be told apart with every
// kind of colour blindness: `tests/inspection/test_colours.py` measures it.

/** Number of colours in the style sheet. Further actions are grey, and every action has its name beside it. */
export const NUM_COLOURS = 7;

/** Returns all discrete actions, the likeliest one first. */
export function rankActions(probabilities) {
  return probabilities.map((_, action) => action).sort((a, b) => probabilities[b] - probabilities[a] || a - b);
}

/** Returns action -> class of its colour. Few actions keep their colours over all steps; of many, the likeliest have one. */
export function actionColours(probabilities) {
  return colourClasses(hasFixedColours(probabilities.length) ? probabilities.map((_, action) => action) : rankActions(probabilities));
}

/** Returns true if every action has a colour of its own. */
export function hasFixedColours(numActions) {
  return numActions <= NUM_COLOURS;
}

/** Returns first action -> class of its colour. The heaviest actions, which come first, get a colour of their own. */
export function colourClasses(ranked) {
  return new Map(ranked.map((first, rank) => [first, rank < NUM_COLOURS ? `colour-${rank}` : "colour-other"]));
}
