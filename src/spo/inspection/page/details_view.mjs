// Describes the circle that is pointed at: its path, its numbers and the state that it reached.

import { element } from "./dom.mjs";
import { lineOf, OTHERS, pathTo } from "./genealogy.mjs";
import { pathToNode } from "./tree.mjs";
import { actionName, allNumbers, count, number, percent } from "./words.mjs";

/** Returns a short label of a circle for screen readers. */
export function describeCircle(search, actions, circle) {
  if (search.kind === "tree") {
    const node = circle.members[0];
    return `${actionName(actions, search.action[node])} at depth ${circle.depth + 1}: ${count(search.visits[node], "visit")}, `
      + `value ${number(search.node_value[node])}`;
  }
  if (circle.members.length > 1) {
    return `${count(circle.members.length, "particle")} at depth ${circle.depth + 1} that began with `
      + `${firstName(search, actions, circle)}: weight ${percent(circle.weight)}`;
  }
  const particle = circle.members[0];
  const end = circle.justEnded ? ", the episode ends" : "";
  const value = circle.ended ? "" : `, value ${number(search.particle_value[circle.depth][particle])}`;
  return `particle at depth ${circle.depth + 1}, action ${actionName(actions, search.action[circle.depth][particle])}: `
    + `weight ${percent(circle.weight)}${value}${end}`;
}

/**
 * Returns the details of a circle. `picture` is an element, or null; `howEnded` is the end in words, or null; `close` ends
 * the selection.
 */
export function drawDetails(search, actions, circle, picture, howEnded, close) {
  const particle = heaviest(search, circle);
  const heading = search.kind === "tree" ? "One state of the tree"
    : circle.members.length > 1 ? `${circle.members.length} particles that began with ${firstName(search, actions, circle)}`
      : "One particle: an imagined future";
  const notes = [];
  if (circle.members.length > 1) notes.push(`Together they weigh ${percent(circle.weight)}. Below is the heaviest of them.`);
  if (!circle.lives) notes.push("This future was dropped: nothing of the result comes from it.");
  if (circle.ended) {
    const how = howEnded ? ` (${howEnded})` : "";
    notes.push(circle.justEnded ? `The episode ends here${how}.` : `The episode has ended on this path${how}: nothing is imagined after the end. `
      + "The weight stays, and the share changes as other particles gain or lose.");
  }
  return element("div", { class: "details-body" },
    element("div", { class: "details-head" }, element("h3", {}, heading),
      element("button", { type: "button", class: "close", onclick: close }, "Close")),
    notes.map((note) => element("p", { class: "note" }, note)),
    picture,
    search.kind === "tree" ? treeTable(search, actions, circle.members[0]) : pathTable(search, actions, circle.depth, particle));
}

function pathTable(search, actions, depth, particle) {
  const { line: path, copies } = lineOf(search, depth, particle);
  const rows = path.map((index, at) => {
    const waits = at > 0 && search.ended[at - 1][path[at - 1]];
    const value = search.ended[at][index] ? "–" : number(search.particle_value[at][index]);
    return [String(at + 1), waits ? "(ended)" : actionName(actions, search.action[at][index]),
      waits ? "–" : number(search.reward[at][index]), value, percent(search.weight[at][index])];
  });
  const rest = copies > 1 ? "After the marked depth it was copied: the heaviest copy is shown. " : "";
  const total = path.reduce((sum, index, at) => sum + (search.reward[at][index] ?? 0), 0);
  return element("div", {},
    table(["depth", "action", "reward", "value", "weight"], rows, depth),
    element("p", { class: "note" }, `${rest}Rewards on this path: ${number(Math.round(1e4 * total) / 1e4)}.`),
    wholeAction(actions, search.action[depth][particle]));
}

function treeTable(search, actions, node) {
  const rows = pathToNode(search, node).slice(1).map((at, index) => [String(index + 1),
    actionName(actions, search.action[at]), percent(search.prior[at]), number(search.reward[at]),
    number(search.node_value[at]), String(search.visits[at])]);
  return element("div", {}, table(["depth", "action", "prior", "reward", "value", "visits"], rows),
    wholeAction(actions, search.action[node]));
}

/** Returns all numbers of an action, where the table has room for some only; else null. */
function wholeAction(actions, action) {
  if (actions.kind === "discrete" || action === null || actionName(actions, action) === allNumbers(action)) return null;
  return element("p", { class: "note" }, `Action of the state that is drawn, in full: ${allNumbers(action)}.`);
}

/** Returns a table. The row `marked` is that of the circle that is pointed at. */
function table(header, rows, marked = null) {
  return element("table", { class: "path" },
    element("thead", {}, element("tr", {}, header.map((name) => element("th", { scope: "col" }, name)))),
    element("tbody", {}, rows.map((row, at) => element("tr", at === marked ? { class: "marked", "aria-current": "true" } : {},
      row.map((cell, column) => element("td", {}, at === marked && column === 0 ? `▸ ${cell}` : cell))))));
}

/** Returns the name of the first action of a circle's particles. */
export function firstName(search, actions, circle) {
  if (circle.first === OTHERS) return "others";
  const path = pathTo(search, circle.depth, circle.members[0]);
  return actionName(actions, search.action[0][path[0]]);
}

/** Returns the heaviest member of a circle. */
export function heaviest(search, circle) {
  if (search.kind === "tree") return circle.members[0];
  const weights = search.weight[circle.depth];
  return circle.members.reduce((best, member) => (weights[member] > weights[best] ? member : best), circle.members[0]);
}

/** Returns the place of a circle's state, as the request for its picture names it. */
export function placeOf(search, circle) {
  return search.kind === "tree" ? circle.members : [circle.depth, heaviest(search, circle)];
}

/** Returns the name of the picture of a circle's state, or null. */
export function pictureOf(search, circle) {
  if (search.picture === null) return null;
  return placeOf(search, circle).reduce((names, index) => names[index], search.picture);
}
