// Draws a layout of circles over depths: the particles of a search, or the nodes of a tree.

import { element, svg } from "./dom.mjs";

const MARGIN = { top: 34, right: 18, bottom: 26, left: 74 };
const LARGEST_RADIUS = 20;
/** Least pixels between two depths. A deep search scrolls sideways. */
const SMALLEST_GAP = 22;
const LARGEST_ROW = 30;
/** Pixels behind the last depth for a resample there. */
const TAIL = 44;
const LETTER = 8;
const SMALLEST_RADIUS = 2.5;
const DIAMOND = 4;

/**
 * Returns a picture of circles.
 *
 * options: {layout, numDepths, resampled, rootRow, classes, labels, width, describe, onSelect, title}
 *   describe(circle) -> label for screen readers; onSelect(circle | null, byKey, tapped | null) is called on hover, tap and focus.
 */
export function drawCircles(options) {
  const { layout, numDepths, resampled, width } = options;
  const labelWidth = LETTER * Math.max(0, ...options.labels.map(({ text }) => text.length));
  const place = placement(layout, numDepths, resampled, width, options.rootRow, labelWidth);
  // Lines from the root are level beside the labels, which stand between them or above them.
  place.level = Math.max(place.root.x + 24, place.x[0] - place.largest - 8 - labelWidth);
  const picture = svg("svg", {
    class: "circles", width: place.width, height: place.height, viewBox: `0 0 ${place.width} ${place.height}`,
    role: "group", "aria-label": options.title,
  });
  picture.append(drawDepths(place, numDepths, resampled));
  const lines = svg("g", { class: "lines" });
  const dots = svg("g", { class: "dots" });
  picture.append(lines, drawRoot(place), drawLabels(options, place), dots);
  const parts = layout.circles.map((circle) => drawCircle(circle, layout, place, options.classes));
  // Large circles first, so that small ones stay in sight and can be pointed at.
  const order = parts.map((_, index) => index).sort((a, b) => layout.circles[b].weight - layout.circles[a].weight);
  for (const index of order) dots.append(parts[index].dot);
  for (const part of parts) lines.append(part.line);
  parts.forEach((part, index) => part.dot.setAttribute("aria-label", options.describe(layout.circles[index])));
  const clear = addSelection(picture, parts, layout, options.onSelect);
  return { picture, place, clear };
}

/** Returns the places of depths and rows. A gap with a resample is wider, and the rows share the height. */
export function placement(layout, numDepths, resampled, width, rootRow, labelWidth = 0) {
  const rowHeight = Math.max(8, Math.min(LARGEST_ROW, 480 / layout.numRows));
  const gaps = Array.from({ length: numDepths }, (_, depth) => (depth > 0 && resampled[depth - 1] ? 1.5 : 1));
  const total = gaps.reduce((sum, gap) => sum + gap, 0);
  const tail = resampled[numDepths - 1] ? TAIL : 0;
  const free = width - MARGIN.left - MARGIN.right - LARGEST_RADIUS - tail;
  // The labels of the first actions need room before depth 1.
  const lead = Math.max(0, labelWidth - Math.max(SMALLEST_GAP, free / total));
  const room = Math.max(free - lead, SMALLEST_GAP * total);
  const x = [];
  let at = MARGIN.left - 40;
  gaps.forEach((gap, depth) => { at += (gap * room) / total + (depth === 0 ? 40 + lead : 0); x.push(at); });
  const y = (row) => MARGIN.top + LARGEST_RADIUS / 2 + (row + 0.5) * rowHeight;
  const height = MARGIN.top + LARGEST_RADIUS + layout.numRows * rowHeight + MARGIN.bottom;
  const root = { x: 26, y: y(rootRow ?? (layout.numRows - 1) / 2) };
  const largest = Math.max(4, Math.min(largestRadius(layout.circles, rowHeight), 0.45 * (room / total)));
  return { x, y, root, rowHeight, largest, height, width: Math.ceil(Math.max(width, at + MARGIN.right + LARGEST_RADIUS / 2 + tail)) };
}

/** Returns the radius of a circle whose area is in proportion to the weight. */
export function radius(weight, largest = LARGEST_RADIUS) {
  return Math.max(SMALLEST_RADIUS, largest * Math.sqrt(Math.max(0, weight)));
}

/** Returns the radius of weight 1 with which neighbours and their diamonds do not touch, as long as rows leave room. */
export function largestRadius(circles, rowHeight) {
  const columns = new Map();
  for (const circle of circles) columns.set(circle.depth, [...(columns.get(circle.depth) ?? []), circle]);
  let largest = LARGEST_RADIUS;
  for (const column of columns.values()) {
    column.sort((a, b) => a.row - b.row);
    for (let index = 1; index < column.length; index++) {
      const pair = [column[index - 1], column[index]];
      const room = (pair[1].row - pair[0].row) * rowHeight - 2 - DIAMOND * pair.filter((circle) => circle.justEnded).length;
      const heavy = pair.map((circle) => Math.sqrt(Math.max(0, circle.weight)));
      // A radius that is raised to the smallest one takes its room from the other's.
      const one = (room - SMALLEST_RADIUS) / Math.max(...heavy, 1e-9);
      const both = room / Math.max(heavy[0] + heavy[1], 1e-9);
      largest = Math.min(largest, one, both);
    }
  }
  return Math.max(6, largest);
}

function drawDepths(place, numDepths, resampled) {
  const group = svg("g", { class: "depths", "aria-hidden": "true" });
  for (let depth = 0; depth < numDepths; depth++) {
    if (resampled[depth]) {
      const gap = depth === numDepths - 1 ? 2 * TAIL : place.x[depth + 1] - place.x[depth];
      const half = depth === numDepths - 1 ? 9 : Math.max(Math.min(9, gap / 2 - 4), gap / 2 - 20);
      const middle = place.x[depth] + gap / 2 - (depth === numDepths - 1 ? 8 : 0);
      group.append(
        svg("rect", { class: "resample", x: middle - half, y: 20, width: 2 * half, height: place.height - 42, rx: 3 }),
        svg("text", { class: "resample-label", x: middle, y: 14, "text-anchor": "middle" },
          gap >= 56 ? "resample" : "↻"),
      );
    }
    group.append(svg("text", { x: place.x[depth], y: place.height - 6, "text-anchor": "middle" }, String(depth + 1)));
  }
  group.append(svg("text", { x: 4, y: place.height - 6 }, "depth"));
  return group;
}

function drawRoot(place) {
  const { x, y } = place.root;
  return svg("g", { class: "root", "aria-hidden": "true" },
    svg("circle", { cx: x, cy: y, r: 7 }),
    svg("text", { x, y: y - 12, "text-anchor": "middle" }, "now"));
}

function drawLabels(options, place) {
  const group = svg("g", { class: "labels", "aria-hidden": "true" });
  const rows = options.layout.circles.filter((circle) => circle.depth === 0).map((circle) => circle.row);
  for (const { row, text, first } of options.labels) {
    const onLine = rows.some((other) => Math.abs(other - row) < 0.4);
    group.append(svg("text", {
      class: options.classes.get(first), x: place.x[0] - place.largest - 6,
      y: place.y(row) + (onLine ? -4 : 4),
      "text-anchor": "end",
    }, text));
  }
  return group;
}

function drawCircle(circle, layout, place, classes) {
  const x = place.x[circle.depth];
  const y = place.y(circle.row);
  const parent = circle.parent < 0 ? null : layout.circles[circle.parent];
  const from = parent === null ? place.root : { x: place.x[parent.depth], y: place.y(parent.row) };
  const bend = parent === null ? place.level : x;
  const middle = (from.x + bend) / 2;
  const colour = classes.get(circle.first) ?? "colour-other";
  const state = `${colour}${circle.lives ? "" : " died"}`;
  const waits = circle.ended && !circle.justEnded;
  const line = svg("path", {
    class: `line ${state}${waits ? " waits" : ""}`,
    d: `M${round(from.x)},${round(from.y)}C${round(middle)},${round(from.y)},${round(middle)},${round(y)},${round(bend)},${round(y)}${parent === null ? `H${round(x)}` : ""}`,
    "stroke-width": 1.2 + 2 * Math.min(1, circle.weight),
  });
  const r = round(radius(circle.weight, place.largest));
  const dot = svg("g", { class: `dot ${state}${waits ? " waits" : ""}`, tabindex: -1, role: "button" },
    svg("circle", { class: "target", cx: round(x), cy: round(y), r: Math.max(r, 7) }),
    svg("circle", { class: "disc", cx: round(x), cy: round(y), r }),
    circle.justEnded ? endMark(round(x), round(y), Math.max(r, 5)) : null);
  return { line, dot };
}

/** Returns a diamond: the episode ends here. */
function endMark(x, y, r) {
  const d = r + DIAMOND;
  return svg("path", { class: "end", d: `M${x - d},${y}L${x},${y - d}L${x + d},${y}L${x},${y + d}Z` });
}

// --- Pointing and keys -----------------------------------------------------------------------------------------------

/**
 * Only one circle is reached by the tab key. Arrow keys move from there: to parent, child and neighbours. Returns a
 * function that ends the selection.
 */
function addSelection(picture, parts, layout, onSelect) {
  const heaviest = layout.circles.reduce((best, circle, index) =>
    (circle.depth === 0 && (best < 0 || circle.weight > layout.circles[best].weight) ? index : best), -1);
  if (heaviest >= 0) parts[heaviest].dot.setAttribute("tabindex", "0");
  const show = (index, byKey, byTouch = false) => {
    const path = new Set();
    for (let at = index; at >= 0; at = layout.circles[at].parent) path.add(at);
    parts.forEach((part, other) => {
      part.line.classList.toggle("on-path", path.has(other));
      part.dot.classList.toggle("on-path", path.has(other));
    });
    picture.classList.add("selecting");
    onSelect(layout.circles[index], byKey, byTouch ? parts[index].dot : null);
    if (byKey) parts[index].dot.scrollIntoView({ block: "nearest", inline: "nearest" });
  };
  // The path stays marked as long as its details are shown.
  const clear = () => {
    picture.classList.remove("selecting");
    onSelect(null, false);
  };
  parts.forEach((part, index) => {
    part.dot.addEventListener("pointerenter", (event) => show(index, false, event.pointerType === "touch"));
    part.dot.addEventListener("focus", () => show(index, true));
    part.dot.addEventListener("keydown", (event) => {
      if (event.key === "Escape") clear();
      const next = neighbour(layout, index, event.key);
      if (next === null) return;
      event.preventDefault();
      event.stopPropagation();
      part.dot.setAttribute("tabindex", "-1");
      parts[next].dot.setAttribute("tabindex", "0");
      parts[next].dot.focus();
    });
  });
  return clear;
}

/** Returns the circle that an arrow key leads to, the same one at a border, or null for other keys. */
export function neighbour(layout, index, key) {
  const circle = layout.circles[index];
  if (key === "ArrowLeft") return circle.parent < 0 ? index : circle.parent;
  if (key === "ArrowRight") {
    const children = layout.circles.map((_, other) => other).filter((other) => layout.circles[other].parent === index);
    children.sort((a, b) => layout.circles[b].weight - layout.circles[a].weight);
    return children[0] ?? index;
  }
  if (key !== "ArrowUp" && key !== "ArrowDown") return null;
  const sign = key === "ArrowDown" ? 1 : -1;
  let best = index;
  layout.circles.forEach((other, at) => {
    const distance = sign * (other.row - circle.row);
    const bestDistance = best === index ? Infinity : sign * (layout.circles[best].row - circle.row);
    if (other.depth === circle.depth && distance > 0 && distance < bestDistance) best = at;
  });
  return best;
}

function round(value) {
  return Math.round(10 * value) / 10;
}

/** Returns a frame in which a wide picture scrolls. */
export function scrolling(picture) {
  return element("div", { class: "scroll" }, picture);
}
