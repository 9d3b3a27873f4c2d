// Draws states: pictures of the environment, sketches of cubes and boards, and observations as tables or heat maps.

import { element, svg } from "./dom.mjs";
import { number } from "./words.mjs";

// (column, row) of each face in the unfolded net: up, front, right, back, left, down.
const NET = [[1, 0], [1, 1], [2, 1], [3, 1], [0, 1], [1, 2]];
const FACES = ["up", "front", "right", "back", "left", "down"];
const GROUND = ["floor", "wall", "target", "floor", "floor", "target", "target"];

/** Returns the picture of a state. */
export function drawPicture(picture, label) {
  if (picture.kind === "png") {
    return element("img", { class: "picture", src: `data:image/png;base64,${picture.png}`, alt: label,
      width: picture.width, height: picture.height });
  }
  return picture.kind === "cube" ? drawCube(picture, label) : drawBoard(picture, label);
}

function drawCube({ size, cells }, label) {
  const face = 10 * size + 3;
  const drawing = svg("svg", { class: "picture cube", viewBox: `0 0 ${4 * face} ${3 * face}`, role: "img",
    "aria-label": `${label}: ${describeCube(size, cells)}` });
  NET.forEach(([column, row], index) => {
    const group = svg("g", { transform: `translate(${column * face + 1},${row * face + 1})` });
    for (let cell = 0; cell < size * size; cell++) {
      group.append(svg("rect", {
        class: `sticker-${cells[index * size * size + cell]}`, rx: 1.2, width: 9.2, height: 9.2,
        x: 10 * (cell % size) + 0.4, y: 10 * Math.floor(cell / size) + 0.4,
      }));
    }
    drawing.append(group);
  });
  return drawing;
}

/** Returns the number of faces of one colour in words. */
export function describeCube(size, cells) {
  const area = size * size;
  const done = FACES.filter((_, face) => new Set(cells.slice(face * area, (face + 1) * area)).size === 1);
  return done.length === 6 ? "solved cube" : `cube with ${done.length} of 6 faces of one colour`;
}

/** Returns if the puzzle of a picture is solved, or null if the picture does not show it. */
export function isSolved(picture) {
  if (picture?.kind === "cube") return describeCube(picture.size, picture.cells) === "solved cube";
  if (picture?.kind === "sokoban") return !picture.cells.includes("4");
  return null;
}

function drawBoard({ size, cells }, label) {
  const drawing = svg("svg", { class: "picture board", viewBox: `0 0 ${10 * size} ${10 * size}`, role: "img",
    "aria-label": label });
  [...cells].forEach((code, cell) => {
    const x = 10 * (cell % size);
    const y = 10 * Math.floor(cell / size);
    const kind = Number(code);
    drawing.append(svg("rect", { class: `cell-${GROUND[kind]}`, x, y, width: 10, height: 10 }));
    if (GROUND[kind] === "target") drawing.append(svg("circle", { class: "ring", cx: x + 5, cy: y + 5, r: 3 }));
    if (kind === 4 || kind === 6) {
      drawing.append(svg("rect", { class: kind === 6 ? "box placed" : "box", x: x + 1.2, y: y + 1.2, width: 7.6, height: 7.6, rx: 1 }),
        svg("path", { class: "brace", d: `M${x + 2.6},${y + 2.6}l4.8,4.8m0,-4.8l-4.8,4.8` }));
    }
    if (kind === 3 || kind === 5) drawing.append(svg("circle", { class: "agent", cx: x + 5, cy: y + 5, r: 3.4 }));
  });
  return drawing;
}

// --- Observations ----------------------------------------------------------------------------------------------------

/** Returns the parts of an observation. */
export function drawObservation(parts) {
  return element("div", { class: "observation" }, parts.map((part) => element("figure", {},
    part.name ? element("figcaption", {}, part.name) : null, drawPart(part))));
}

function drawPart({ shape, values }) {
  if (values === null) return element("p", { class: "note" }, `${shape.join(" × ")} numbers, too many to show.`);
  if (values.length > 40 || shape.length > 1) return drawHeatMap(shape, values);
  return element("ol", { class: "numbers" }, values.map((value, index) =>
    element("li", {}, element("span", { class: "index" }, String(index)), number(Number(value)))));
}

/** Returns the rows and columns of a heat map: the last axis runs to the right. */
export function gridOf(shape, length) {
  const columns = shape.length > 1 ? shape[shape.length - 1] : Math.ceil(Math.sqrt(length));
  if (columns === 0) return { columns: 0, rows: 0 };
  return { columns, rows: Math.ceil(length / columns) };
}

function drawHeatMap(shape, values) {
  const { columns, rows } = gridOf(shape, values.length);
  const numbers = values.map(Number);
  const most = Math.max(...numbers.map(Math.abs), 1e-9);
  const drawing = svg("svg", { class: "heat", viewBox: `0 0 ${Math.max(1, columns)} ${Math.max(1, rows)}`, role: "img",
    "aria-label": `observation of ${values.length} numbers from ${number(Math.min(...numbers))} to ${number(Math.max(...numbers))}` });
  numbers.forEach((value, index) => {
    drawing.append(svg("rect", {
      class: value < 0 ? "negative" : "positive", "fill-opacity": (Math.abs(value) / most).toFixed(2),
      x: index % columns, y: Math.floor(index / columns), width: 1, height: 1,
    }));
  });
  return drawing;
}
