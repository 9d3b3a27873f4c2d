// Draws the diagnostics of a search with particles: one row of points for each, below the depths of the genealogy.

import { svg } from "./dom.mjs";
import { number } from "./words.mjs";

const ROW = 60;

/** Returns a picture with three rows: effective particles, particles still running, different first actions. */
export function drawCurves(search, place) {
  const rows = [
    ["effective", "particles", search.ess, search.num_particles],
    ["particles", "still running", search.live, search.num_particles],
    ["different", "first actions", search.root_actions, Math.max(...search.root_actions, 1)],
  ];
  const height = rows.length * ROW + 4;
  const picture = svg("svg", {
    class: "curves", width: place.width, height, viewBox: `0 0 ${place.width} ${height}`, role: "img",
    "aria-label": rows.map(([first, second, values]) => `${first} ${second}: ${values.map(number).join(", ")}`).join(". "),
  });
  rows.forEach(([first, second, values, most], row) => {
    const bottom = (row + 1) * ROW - 6;
    const middle = bottom - (ROW - 12) / 2;
    const y = (value) => bottom - 3 - ((ROW - 34) * (value ?? 0)) / most;
    const points = values.map((value, depth) => `${place.x[depth].toFixed(1)},${y(value).toFixed(1)}`);
    picture.append(
      svg("text", { class: "name", x: 4, y: middle - 2 }, first),
      svg("text", { class: "name", x: 4, y: middle + 11 }, second),
      svg("line", { class: "base", x1: place.x[0] - 8, x2: place.x[place.x.length - 1] + 8, y1: bottom, y2: bottom }),
      svg("polyline", { class: `curve row-${row}`, points: points.join(" ") }),
    );
    const every = Math.ceil(values.length / 16);
    values.forEach((value, depth) => {
      picture.append(svg("circle", { class: `point row-${row}`, cx: place.x[depth], cy: y(value), r: 2.5 }));
      if (depth % every === 0 || depth === values.length - 1) {
        picture.append(svg("text", { x: place.x[depth], y: y(value) - 6, "text-anchor": "middle" }, short(value)));
      }
    });
  });
  return picture;
}

function short(value) {
  return value === null ? "–" : String(Math.round(10 * value) / 10);
}
