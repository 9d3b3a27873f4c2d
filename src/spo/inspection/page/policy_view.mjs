// Draws the policy before and after the search: bars of discrete actions, densities of continuous ones.

import { radius } from "./circles_view.mjs";
import { element, svg } from "./dom.mjs";
import { actionName, count, number, percent } from "./words.mjs";

/** Actions with a bar of their own: the most likely ones, before or after. */
export const MOST_BARS = 12;
/** Dimensions of a continuous action that are drawn. */
export const MOST_DIMENSIONS = 12;
const UNTRIED = "not tried";

/** Returns the actions that the search tried in this state; null without a search. */
export function triedActions(search) {
  if (!search) return null;
  return new Set(search.kind === "tree" ? search.action.filter((_, node) => search.parent[node] === 0) : search.action[0]);
}

/** Returns the actions to show as bars in the order of their numbers, tried ones before others, and the number of the rest. */
export function shownActions(policy, chosen, mask = null, tried = null) {
  const size = (action) => Math.max(policy.before?.[action] ?? 0, policy.after?.[action] ?? 0);
  const numActions = (policy.before ?? policy.after ?? []).length;
  const allowed = (action) => (mask === null || mask[action] ? 1 : 0);
  const wasTried = (action) => (tried?.has(action) ? 1 : 0);
  const ranked = Array.from({ length: numActions }, (_, action) => action)
    .sort((a, b) => allowed(b) - allowed(a) || wasTried(b) - wasTried(a) || size(b) - size(a) || a - b);
  const shown = ranked.slice(0, MOST_BARS);
  if (typeof chosen === "number" && numActions > 0 && !shown.includes(chosen)) shown[shown.length - 1] = chosen;
  return { shown: shown.sort((a, b) => a - b), others: numActions - shown.length };
}

/**
 * Returns the policy of a decision. `mask` tells which actions are allowed; null: all. `play(action)` is given on the live
 * page only.
 */
export function drawPolicy(decision, actions, classes, mask, play) {
  return actions.kind === "discrete"
    ? drawBars(decision, actions, classes, mask, play)
    : drawDensities(decision, actions, play);
}

function drawBars(decision, actions, classes, mask, play) {
  const { policy } = decision;
  if (!policy.before && !policy.after) {
    return element("p", {}, `Chosen: ${actionName(actions, decision.action)}. This algorithm does not show its policy.`);
  }
  const tried = triedActions(decision.search);
  const { shown, others } = shownActions(policy, decision.action, mask, tried);
  const rows = shown.map((action) => {
    const isChosen = action === decision.action;
    const before = policy.before?.[action];
    const after = policy.after?.[action];
    const name = actionName(actions, action);
    if (mask !== null && !mask[action]) return forbiddenRow(name, 3 + Number(Boolean(policy.after)) + Number(Boolean(play)));
    return element("tr", { class: isChosen ? "chosen" : null },
      element("th", { scope: "row" }, isChosen ? "▸ " : "", element("span", { class: "name", title: name }, name), isChosen ? element("span", { class: "hidden-text" }, " (chosen)") : null),
      element("td", { class: "bars" },
        before === undefined ? null : bar("before", before, ""),
        after === undefined ? null : bar("after", after, classes.get(action) ?? "colour-other")),
      element("td", { class: "number" }, before === undefined ? "" : percent(before)),
      policy.after ? shareCell(after, tried === null || tried.has(action)) : null,
      play ? element("td", {}, element("button", { type: "button", class: "play", onclick: () => play(action),
        "aria-label": `Play ${name}` }, "play")) : null);
  });
  return element("div", {},
    element("table", { class: "policy" },
      element("thead", {}, element("tr", {},
        element("th", { scope: "col" }, "action"), element("th", { scope: "col" }, ""),
        element("th", { scope: "col", class: "number" }, policy.before ? heading("before", policy.after ? "before" : "chance") : ""),
        policy.after ? element("th", { scope: "col", class: "number" }, heading("after", "after")) : null,
        play ? element("th", { scope: "col" }, element("span", { class: "hidden-text" }, "play by hand")) : null)),
      element("tbody", {}, rows)),
    others > 0 ? element("p", { class: "note" }, `${hiddenSentence(others, tried, shown)}`) : null);
}

function shareCell(share, wasTried) {
  const text = shareAfter(share, wasTried);
  return element("td", { class: `number strong${text === UNTRIED ? " untried" : ""}` }, text);
}

/** Returns the share after the search in words. Some tree searches give untried actions a share as well. */
export function shareAfter(share, wasTried) {
  if (share === undefined) return "";
  return wasTried || share > 0 ? percent(share) : UNTRIED;
}

/** Returns how many actions have no bar, and how many of them were tried. */
export function hiddenSentence(others, tried, shown) {
  const hidden = tried === null ? 0 : [...tried].filter((action) => !shown.includes(action)).length;
  const how = tried === null ? "" : hidden > 0 ? ` ${hidden} of them ${hidden === 1 ? "was" : "were"} tried.` : " None was tried.";
  return `${count(others, "less likely action")} not shown.${how}`;
}

function forbiddenRow(name, columns) {
  return element("tr", { class: "forbidden" },
    element("th", { scope: "row" }, element("span", { class: "name", title: name }, name)),
    element("td", { colspan: columns - 1 }, "not allowed in this state"));
}

/** Returns the name of a column with the colour of its bars. The bars after the search have the colours of the actions. */
function heading(kind, text) {
  const colours = kind === "before" ? [""] : [" colour-0", " colour-1", " colour-2"];
  return [element("span", { class: "swatch", "aria-hidden": "true" }, colours.map((colour) => element("i", { class: kind + colour }))), text];
}

function bar(kind, share, colour) {
  const node = element("span", { class: `bar ${kind} ${colour}` });
  node.style.width = `${100 * share}%`;
  return node;
}

// --- Continuous actions ----------------------------------------------------------------------------------------------
function drawDensities(decision, actions, play) {
  const { policy } = decision;
  const shown = Math.min(actions.size, MOST_DIMENSIONS);
  const charts = Array.from({ length: shown }, (_, dimension) => element("figure", { class: "density" },
    drawDensity(decision, actions, dimension),
    element("figcaption", {}, `dimension ${dimension + 1}: ${number(decision.action[dimension])}`)));
  return element("div", {},
    element("div", { class: "densities" }, charts),
    element("p", { class: "note" },
      policy.after ? "Grey area: the policy network, before the search. Circles: the first actions that were drawn for the search; larger ones "
        + "count more after it. Orange line: the chosen action."
        : "Grey area: how likely the policy network makes each number. Orange line: the chosen action."),
    actions.size > shown ? element("p", { class: "note" }, `${count(actions.size - shown, "dimension")} not shown.`) : null,
    play ? playByHand(decision, actions, play) : null);
}

/** Returns a form in which the numbers of an action are changed and played. */
function playByHand(decision, actions, play) {
  const inputs = decision.action.map((value, index) => element("input", { type: "number",
    min: boundOf(actions.low, index), max: boundOf(actions.high, index), step: "any", value, "aria-label": `dimension ${index + 1}` }));
  const form = element("form", { class: "controls" },
    inputs.map((input, index) => element("label", {}, element("span", {}, `dimension ${index + 1}`), input)),
    element("button", { type: "submit", "aria-label": "Play these numbers" }, "Play these numbers"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    play(inputs.map((input) => Number(input.value)));
  });
  return element("details", { class: "by-hand" }, element("summary", {}, "Play an action by hand"), form);
}

/** Returns the bound of one dimension: bounds are one number for all, or a list. */
export function boundOf(bound, dimension) {
  return Array.isArray(bound) ? bound[dimension] : bound;
}

function drawDensity(decision, actions, dimension) {
  const { policy } = decision;
  const width = 150;
  const height = 76;
  const top = 40;
  const side = 10;
  const low = boundOf(actions.low, dimension);
  const high = boundOf(actions.high, dimension);
  const x = (value) => side + ((width - 2 * side) * (value - low)) / (high - low);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `density of dimension ${dimension + 1}` });
  const bins = policy.before?.[dimension];
  if (bins) {
    const most = Math.max(...bins, 1e-9);
    const step = (width - 2 * side) / bins.length;
    const points = bins.map((value, bin) => `${(side + (bin + 0.5) * step).toFixed(1)},${(top - (34 * value) / most).toFixed(1)}`);
    picture.append(svg("polygon", { class: "area", points: `${side},${top} ${points.join(" ")} ${width - side},${top}` }));
  }
  picture.append(svg("line", { class: "base", x1: side, x2: width - side, y1: top, y2: top }));
  policy.after?.actions.forEach((action, index) => {
    picture.append(svg("circle", { class: "sample", cx: x(action[dimension]), cy: top + 12,
      r: Math.max(1.5, 0.45 * radius(policy.after.weights[index])) }));
  });
  picture.append(
    svg("line", { class: "chosen", x1: x(decision.action[dimension]), x2: x(decision.action[dimension]), y1: 3, y2: top + 22 }),
    svg("text", { x: 2, y: height - 2 }, number(low)),
    svg("text", { x: width - 2, y: height - 2, "text-anchor": "end" }, number(high)));
  return picture;
}
