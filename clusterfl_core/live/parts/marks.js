// The marks of groups and the colours of models, as in the book's figures. Python writes LOOKS
// before the modules, from clusterfl_core.figures (live/__init__.py).

import { svg } from "./dom.js";

const marker_of = (group) => LOOKS.markers[group % LOOKS.markers.length];

export const spoken_mark = (group) => marker_of(group).name;

export const colour_of = (model) => LOOKS.colours[model % LOOKS.colours.length];

// White or black, whichever stands out more on the colour (WCAG 2).
export function ink_on(colour) {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16) / 255);
  const [red, green, blue] = parts.map((c) =>
    c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.18 ? "#fff" : "#000";
}

function shaped(outline, x, y, radius, attributes) {
  const place = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${radius})`;
  return svg("path", {
    d: outline,
    transform: place,
    "vector-effect": "non-scaling-stroke",
    ...attributes,
  });
}

// The mark of a true group.
export function group_mark(group, x, y, radius, attributes = {}) {
  return shaped(marker_of(group).outline, x, y, radius, attributes);
}

// A client: its shape is its true group; colour and number are the model it chooses.
export function client_mark(group, model, x, y, radius) {
  const colour = colour_of(model);
  const down = { triangle: 0.25, "triangle upside down": -0.25 }[spoken_mark(group)] ?? 0;
  const size = Math.max(11, 1.35 * radius);
  return svg(
    "g",
    {},
    group_mark(group, x, y, radius, { fill: colour, class: "edge" }),
    svg(
      "text",
      {
        x,
        y: y + 0.355 * size + radius * down,
        class: "number",
        style: `fill:${ink_on(colour)};font-size:${size.toFixed(1)}px`,
      },
      `${model}`,
    ),
  );
}

// A model of the server alone.
export function cross_mark(model, x, y, radius) {
  return shaped(LOOKS.cross, x, y, radius, { fill: colour_of(model), class: "edge" });
}

// A model of the server, with its number beside it.
// In a square of `size` its name stays inside.
export function model_mark(model, x, y, radius, size = Infinity) {
  const far = radius + 2;
  const place = x + far + 9 > size ? { x: x - far, "text-anchor": "end" } : { x: x + far };
  return svg(
    "g",
    {},
    cross_mark(model, x, y, radius),
    svg("text", { ...place, y: Math.max(12, y - radius * 0.4), class: "name" }, `${model}`),
  );
}

// The outline of a star: what is best.
export function star_mark(x, y, radius) {
  return shaped(LOOKS.star, x, y, radius, { class: "star" });
}

// A true model, with the mark of its group inside.
export function truth_mark(group, x, y, radius) {
  return svg(
    "g",
    {},
    star_mark(x, y, radius),
    group_mark(group, x, y, radius * 0.26, { fill: "currentColor" }),
  );
}
