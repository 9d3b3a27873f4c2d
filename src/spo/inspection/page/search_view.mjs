// Draws one decision: the search, its diagnostics, the policy and the details of what is pointed at.

import { drawCircles, scrolling } from "./circles_view.mjs";
import { actionColours, colourClasses } from "./colours.mjs";
import { drawCurves } from "./curves_view.mjs";
import { describeCircle, drawDetails, firstName, pictureOf, placeOf } from "./details_view.mjs";
import { element, replace } from "./dom.mjs";
import { layoutGenealogy, rankFirstActions } from "./genealogy.mjs";
import { drawLegend, invitation } from "./guide.mjs";
import { drawPicture, isSolved } from "./pictures_view.mjs";
import { drawPolicy } from "./policy_view.mjs";
import { layoutTree } from "./tree.mjs";
import { actionName, count, tenths, whyChosen } from "./words.mjs";

/** Most letters of an action beside the picture: room for "action 8099". */
const MOST_LETTERS = 11;
/** Most pixels that are kept free for the details of a circle. */
const MOST_ROOM = 460;

/**
 * Returns the panel of a decision.
 *
 * options: {decision, actions, mask, method, pictures, width, title, ranking, play, askPicture}; `ranking` holds the probabilities
 * whose order decides the colours of discrete actions, so that two panels agree: those of the first, if `isSecond`. `play(action)` and
 * `askPicture(search_id, place)` are given on the live page only.
 */
export function drawDecision(options) {
  const { decision, actions, width, title, play } = options;
  const { search } = decision;
  const ranking = options.ranking ?? decision.policy.after;
  const colours = actions.kind === "discrete" && ranking ? actionColours(ranking) : null;
  const view = search === null ? null : search.kind === "tree" ? viewOfTree(search, actions, colours) : viewOfParticles(search, actions, colours);
  return element("section", { class: "decision" },
    title ? element("h2", {}, title) : null,
    element("div", { class: "why" }, element("h3", {}, "Why this action?"),
      whyChosen(decision, actions, options.method, search === null ? null : endOfParticles(search, options.pictures)).filter(Boolean).map((text) => element("p", {}, text))),
    element("div", { class: "columns" },
      element("div", { class: "policy-panel" },
        element("h3", {}, search ? "Policy before and after the search" : "Policy"),
        drawPolicy(decision, actions, colours ?? new Map(), options.mask ?? null, play)),
      view ? drawSearch(options, view, width) : null));
}

function viewOfParticles(search, actions, colours) {
  const layout = layoutGenealogy(search, actions.kind === "discrete");
  const classes = colours ?? colourClasses(rankFirstActions(search, layout.firsts));
  const heading = layout.folded
    ? `${search.num_particles} particles, folded by their first action`
    : `Genealogy of ${count(search.num_particles, "particle")}`;
  return { layout, classes, heading, numDepths: search.horizon, resampled: search.resampled,
    labels: labelsOf(layout, (circle) => firstName(search, actions, circle), actions) };
}

function viewOfTree(search, actions, colours) {
  const layout = layoutTree(search);
  const roots = layout.circles.filter((circle) => circle.depth === 0);
  const ranked = [...roots].sort((a, b) => b.weight - a.weight).map((circle) => circle.first);
  const classes = colours ? new Map(ranked.map((node) => [node, colours.get(search.action[node])])) : colourClasses(ranked);
  const hidden = layout.hidden > 0 ? `, the ${layout.hidden} least visited not shown` : "";
  return { layout, classes, heading: `Tree of ${count(search.parent.length, "state")}${hidden}`,
    numDepths: layout.numDepths, resampled: [], rootRow: layout.rootRow,
    labels: labelsOf(layout, (circle) => actionName(actions, search.action[circle.members[0]]), actions) };
}

/** Returns the names of the first actions, each beside the middle of its circles at depth 1. */
function labelsOf(layout, name, actions) {
  if (actions.kind !== "discrete") return [];
  const groups = new Map();
  for (const circle of layout.circles) {
    if (circle.depth !== 0) continue;
    if (!groups.has(circle.first)) groups.set(circle.first, []);
    groups.get(circle.first).push(circle);
  }
  return [...groups].map(([first, circles]) => ({
    first, text: shorten(name(circles[0])), row: circles.reduce((sum, circle) => sum + circle.row, 0) / circles.length,
  }));
}

function shorten(text) {
  return text.length > MOST_LETTERS ? `${text.slice(0, MOST_LETTERS - 1)}…` : text;
}

function drawSearch(options, view, width) {
  const { decision, actions } = options;
  const { search } = decision;
  const details = element("div", { class: "details", "aria-live": "polite" },
    element("p", { class: "note" }, invitation(search)));
  // Room for the longest path, so that the page does not grow when a circle is pointed at. Longer ones scroll.
  const room = (search.picture !== null || options.askPicture ? 330 : 170) + 26 * view.numDepths;
  details.style.setProperty("--room", `${Math.min(room, MOST_ROOM)}px`);
  const select = (circle, byKey, tapped) => {
    showDetails(details, options, circle, () => clear());
    const isSheet = getComputedStyle(details.firstElementChild).position === "fixed";
    if (tapped && isSheet) showAbove(details.firstElementChild, tapped);
    // A pointer is where its reader looks. Keys may have left the details out of sight.
    if (byKey && !isSheet) details.scrollIntoView({ block: "nearest" });
  };
  const { picture, place, clear } = drawCircles({
    ...view, width, title: view.heading, describe: (circle) => describeCircle(search, actions, circle), onSelect: select,
  });
  const charts = [picture];
  if (search.kind === "particles") charts.push(drawCurves(search, place));
  return [element("div", { class: "search-panel" },
    element("h3", {}, view.heading),
    drawLegend(search, view.layout, actions, commonEnd(search, view.layout, options.pictures), options.isSecond),
    place.width > width + 1 ? element("p", { class: "note" }, "The picture is wider than the page: scroll it sideways to see all depths.") : null,
    scrolling(element("div", {}, charts)),
    search.kind === "particles" ? element("p", { class: "note" }, effectiveNote(search)) : null), details];
}

/** Scrolls the page until the sheet at its lower edge does not cover a circle. */
function showAbove(sheet, circle) {
  const covered = circle.getBoundingClientRect().bottom + 12 - sheet.getBoundingClientRect().top;
  if (covered > 0) window.scrollBy(0, covered);
}

/** Returns how a circle's episode ended in words, or null where its picture does not tell. */
function howEnded(search, circle, pictures) {
  const name = pictureOf(search, circle);
  const solved = circle.ended && name !== null ? isSolved(pictures[name]) : null;
  return solved === null ? null : solved ? "solved" : "not solved";
}

/** Returns how all episodes in a picture ended if they ended alike, or null. */
function commonEnd(search, layout, pictures) {
  const ends = new Set(layout.circles.filter((circle) => circle.justEnded).map((circle) => howEnded(search, circle, pictures)));
  return ends.size === 1 ? [...ends][0] : null;
}

/** Returns how all particles that have ended did so if they ended alike, or null. */
export function endOfParticles(search, pictures) {
  if (search.kind !== "particles" || search.picture === null) return null;
  const last = search.horizon - 1;
  const ends = new Set(search.ended[last].flatMap((ended, particle) => (ended ? [isSolved(pictures[search.picture[last][particle]])] : [])));
  if (ends.size !== 1 || ends.has(null)) return null;
  return ends.has(true) ? "solved" : "not solved";
}

function effectiveNote(search) {
  const last = search.ess[search.horizon - 1];
  return `Effective particles (effective sample size, ESS): the weight is spread as if over so many equally heavy particles. At the `
    + `last depth, these are ${tenths(last)} of ${search.num_particles}. `
    + (search.resampled.some(Boolean) ? "When the number is small, resampling moves the work to the futures that matter."
      : "When the number is small, few futures decide.")
    + " Mean value: the value network's value of the states at a depth, mean over the particles still running, by their weights. It has no "
    + "rewards in it; the value by the search is the rewards on the path plus the value at its end.";
}

let asked = 0;

function showDetails(place, options, circle, close) {
  const { decision, actions, pictures, askPicture } = options;
  const { search } = decision;
  if (circle === null) {
    replace(place, element("p", { class: "note" }, invitation(search)));
    return;
  }
  const name = pictureOf(search, circle);
  const frame = element("figure", { class: "state-of-particle" });
  const fillFrame = (drawn) => frame.append(drawPicture(drawn, "state that was reached"), element("figcaption", {}, `The state at depth ${circle.depth + 1}`));
  if (name !== null && pictures[name]) fillFrame(pictures[name]);
  else if (askPicture && decision.search_id) {
    const mine = ++asked;
    askPicture(decision.search_id, placeOf(search, circle)).then((answer) => {
      if (mine === asked && answer.picture) fillFrame(answer.picture);
    }).catch(() => {});
  }
  replace(place, drawDetails(search, actions, circle, frame, howEnded(search, circle, pictures), close));
}
