// A chart with two axes: lines with their names at their ends, and dots.

import { html, svg, width_of } from "./dom.js";
import { clear_place } from "./labels.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 10, 10, 36]; // pixels around the field

// An axis: {low, high, log, ticks: [[value, text] …], words}. tall: height in pixels; caption: above it.
// show(label, things, limits): label is what the picture says; things: {points, name, dash, colour, wide} of a
// line, with its name above its end, or `under` it, or `back` so many points before it, if no line
// crosses it there, else nearby; or {at, draw(x, y) → SVG}; limits: {low, high} of the axis upwards, where they change. → {node, show}
export function make_chart({ tall, x: across, y: upwards, caption }) {
  const picture = svg("svg", { role: "img", class: "chart", height: tall });
  const node = html("figure", {}, html("figcaption", {}, caption), picture);
  let again = () => {};
  const wide = width_of(picture, node, 300, () => again());
  const share_of = ({ low, high, log }, value) =>
    log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  const inside = ({ low, high }, value) => value >= low && value <= high;

  function paint(label, things, up) {
    const width = Math.max(220, wide());
    const [right, bottom] = [width - RIGHT, tall - BOTTOM];
    const place = ([a, b]) => [
      LEFT + (right - LEFT) * share_of(across, a),
      bottom - (bottom - TOP) * share_of(up, b),
    ];
    const grid = [
      ...across.ticks.map(([value, text]) => {
        const [a] = place([value, up.low]);
        return [`M${a} ${TOP}V${bottom}`, { x: a, y: bottom + 14, "text-anchor": "middle" }, text];
      }),
      ...up.ticks
        .filter(([value]) => inside(up, value))
        .map(([value, text]) => {
          const [, b] = place([across.low, value]);
          return [`M${LEFT} ${b}H${right}`, { x: LEFT - 5, y: b + 4, "text-anchor": "end" }, text];
        }),
    ];
    const lines = things
      .filter(({ points }) => points)
      .map((thing) => {
        const seen = thing.points.filter(([a, b]) => inside(across, a) && inside(up, b));
        return { ...thing, spots: seen.map(place) };
      });
    const drawn = lines.map(({ spots, colour, wide: thick, dash }) =>
      svg("polyline", {
        points: spots.map((spot) => spot.map((v) => v.toFixed(1))).join(" "),
        fill: "none",
        stroke: colour ?? "currentColor",
        "stroke-width": thick ?? 1.6,
        "stroke-dasharray": dash ?? "none",
      }),
    );
    const dots = things.filter(({ at }) => at && inside(across, at[0]) && inside(up, at[1]));
    const spots_of_dots = dots.map(({ at }) => place(at));
    const taken = spots_of_dots.map(([x, y]) => [x - 5, x + 5, y - 5, y + 5]);
    const given = { lines: lines.map(({ spots }) => spots), taken, box: [LEFT, right, 0, bottom] };
    const names = lines
      .filter(({ name, spots }) => name && spots.length)
      .map(({ name, spots, back = 0, under }) => {
        const wanted = spots.at(-1 - Math.min(back, spots.length - 1));
        const where = clear_place(spots, wanted, name, { ...given, under });
        return svg("text", { class: "name", ...where }, name);
      });
    picture.setAttribute("viewBox", `0 0 ${width} ${tall}`);
    picture.setAttribute("aria-label", label);
    picture.replaceChildren(
      svg("path", { class: "grid", d: grid.map(([d]) => d).join("") }),
      ...grid.map(([, where, text]) => svg("text", where, text)),
      svg("text", { x: (LEFT + right) / 2, y: tall - 4, "text-anchor": "middle" }, across.words),
      ...drawn,
      ...dots.map(({ draw }, at) => draw(...spots_of_dots[at])),
      ...names,
    );
  }

  return {
    node,
    show(label, things, limits = {}) {
      again = () => paint(label, things, { ...upwards, ...limits });
      again();
    },
  };
}
