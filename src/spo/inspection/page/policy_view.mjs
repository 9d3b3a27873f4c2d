// Draws the policy before and after the search: bars of discrete actions, densities of continuous ones.

import { radius } from "./circles_view.mjs";
import { element, svg } from "./dom.mjs";
import { actionName, count, number, percent } from "./words.mjs";

/** Actions with a bar of their own: the most likely ones, before or after. */
export const MOST_BARS = 12;
/** Dimensions of a continuous action that are drawn. */
export const MOST_DIMENSIONS = 12;

/** Returns the actions to show as bars in the order of their numbers, and the number of the others. */
export function shownActions(policy, chosen) {
  const size = (action) => Math.max(policy.before?.[action] ?? 0, policy.after?.[action] ?? 0);
  const numActions = (policy.before ?? policy.after ?? []).length;
  const ranked = Array.from({ length: numActions }, (_, action) => action).sort((a, b) => size(b) - size(a) || a - b);
  const shown = ranked.slice(0, MOST_BARS);
  if (typeof chosen === "number" && numActions > 0 && !shown.includes(chosen)) shown[shown.length - 1] = chosen;
  return { shown: shown.sort((a, b) => a - b), others: numActions - shown.length };
}

/** Returns the policy of a decision. `play(action)` is given on the live page only. */
export function drawPolicy(decision, actions, classes, play) {
  return actions.kind === "discrete"
    ? drawBars(decision, actions, classes, play)
    : drawDensities(decision, actions, play);
}

function drawBars(decision, actions, classes, play) {
  const { policy } = decision;
  if (!policy.before && !policy.after) {
    return element("p", {}, `Chosen: ${actionName(actions, decision.action)}. This algorithm does not show its policy.`);
  }
  const { shown, others } = shownActions(policy, decision.action);
  const rows = shown.map((action) => {
    const isChosen = action === decision.action;
    const before = policy.before?.[action];
    const after = policy.after?.[action];
    const name = actionName(actions, action);
    return element("tr", { class: isChosen ? "chosen" : null },
      element("th", { scope: "row" }, isChosen ? "▸ " : "", element("span", { class: "name", title: name }, name), isChosen ? element("span", { class: "hidden-text" }, " (chosen)") : null),
      element("td", { class: "bars" },
        before === undefined ? null : bar("before", before, ""),
        after === undefined ? null : bar("after", after, classes.get(action) ?? "colour-other")),
      element("td", { class: "number" }, before === undefined ? "" : percent(before)),
      element("td", { class: "number strong" }, after === undefined ? "" : percent(after)),
      play ? element("td", {}, element("button", { type: "button", class: "play", onclick: () => play(action),
        "aria-label": `Play ${name}` }, "play")) : null);
  });
  return element("div", {},
    element("table", { class: "policy" },
      element("thead", {}, element("tr", {},
        element("th", { scope: "col" }, "action"), element("th", { scope: "col" }, ""),
        element("th", { scope: "col", class: "number" }, policy.before ? "before" : ""),
        element("th", { scope: "col", class: "number" }, policy.after ? "after" : ""),
        play ? element("th", { scope: "col" }, element("span", { class: "hidden-text" }, "play by hand")) : null)),
      element("tbody", {}, rows)),
    others > 0 ? element("p", { class: "note" }, `${count(others, "less likely action")} not shown.`) : null);
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
      policy.after ? "Area: policy before the search. Circles: first actions, area = weight. Line: the chosen action."
        : "Area: policy. Line: the chosen action."),
    actions.size > shown ? element("p", { class: "note" }, `${count(actions.size - shown, "dimension")} not shown.`) : null,
    play ? element("button", { type: "button", onclick: () => play(decision.action) }, "Play the chosen action") : null);
}

function drawDensity(decision, actions, dimension) {
  const { policy } = decision;
  const width = 150;
  const height = 64;
  const top = 40;
  const x = (value) => 4 + ((width - 8) * (value - actions.low)) / (actions.high - actions.low);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `density of dimension ${dimension + 1}` });
  const bins = policy.before?.[dimension];
  if (bins) {
    const most = Math.max(...bins, 1e-9);
    const step = (width - 8) / bins.length;
    const points = bins.map((value, bin) => `${(4 + (bin + 0.5) * step).toFixed(1)},${(top - (34 * value) / most).toFixed(1)}`);
    picture.append(svg("polygon", { class: "area", points: `4,${top} ${points.join(" ")} ${width - 4},${top}` }));
  }
  picture.append(svg("line", { class: "base", x1: 4, x2: width - 4, y1: top, y2: top }));
  policy.after?.actions.forEach((action, index) => {
    picture.append(svg("circle", { class: "sample", cx: x(action[dimension]), cy: top + 11,
      r: Math.max(1.2, radius(policy.after.weights[index]) / 2) }));
  });
  picture.append(
    svg("line", { class: "chosen", x1: x(decision.action[dimension]), x2: x(decision.action[dimension]), y1: 3, y2: top + 20 }),
    svg("text", { x: 4, y: height - 2 }, number(actions.low)),
    svg("text", { x: width - 4, y: height - 2, "text-anchor": "end" }, number(actions.high)));
  return picture;
}
