// Draws the diagnostics of a search with particles: one row of points for each, below the depths of the genealogy.

import { svg } from "./dom.mjs";
import { number, tenths } from "./words.mjs";

const ROW = 60;
/** Pixels that the number of a point takes. */
const NUMBER_WIDTH = 30;

/** Returns the mean value at each depth of the particles that still run, by their weights; null where none runs. */
export function meanValues(search) {
  return search.weight.map((weights, depth) => {
    let [sum, total] = [0, 0];
    weights.forEach((weight, particle) => {
      if (search.ended[depth][particle]) return;
      sum += (weight ?? 0) * (search.particle_value[depth][particle] ?? 0);
      total += weight ?? 0;
    });
    return total > 0 ? sum / total : null;
  });
}

/** Returns a picture with four rows: effective particles, particles still running, first actions, mean value. */
export function drawCurves(search, place) {
  const values = meanValues(search);
  const known = values.filter((value) => value !== null);
  const rows = [
    ["effective", "particles", search.ess, 0, search.num_particles, tenths],
    ["particles", "still running", search.live, 0, search.num_particles, tenths],
    ["different first", "actions left", search.root_actions, 0, Math.max(...search.root_actions, 1), tenths],
    ["mean", "value", values, Math.min(0, ...known), Math.max(0, ...known), number],
  ];
  const height = rows.length * ROW + 4;
  const picture = svg("svg", {
    class: "curves", width: place.width, height, viewBox: `0 0 ${place.width} ${height}`, role: "img",
    "aria-label": rows.map(([first, second, points]) => `${first} ${second}: ${points.map(number).join(", ")}`).join(". "),
  });
  const gap = place.x.length < 2 ? NUMBER_WIDTH : (place.x[place.x.length - 1] - place.x[0]) / (place.x.length - 1);
  rows.forEach(([first, second, points, least, most, text], row) => {
    const bottom = (row + 1) * ROW - 6;
    const middle = bottom - (ROW - 12) / 2;
    const y = (value) => bottom - 3 - ((ROW - 34) * (value - least)) / Math.max(most - least, 1e-9);
    const shown = points.flatMap((value, depth) => (value === null ? [] : [[value, depth]]));
    picture.append(
      svg("text", { class: "name", x: 4, y: middle - 2 }, first),
      svg("text", { class: "name", x: 4, y: middle + 11 }, second),
      svg("line", { class: "base", x1: place.x[0] - 8, x2: place.x[place.x.length - 1] + 8, y1: bottom, y2: bottom }),
      svg("polyline", { class: `curve row-${row}`, points: shown.map(([value, depth]) => `${place.x[depth].toFixed(1)},${y(value).toFixed(1)}`).join(" ") }),
    );
    const every = Math.ceil((text === number ? 1.5 : 1) * NUMBER_WIDTH / Math.max(1, gap));
    shown.forEach(([value, depth]) => {
      picture.append(svg("circle", { class: `point row-${row}`, cx: place.x[depth], cy: y(value), r: 2.5 }));
      if (depth % every === 0) {
        picture.append(svg("text", { x: place.x[depth], y: y(value) - 6, "text-anchor": "middle" }, text(value)));
      }
    });
  });
  return picture;
}
