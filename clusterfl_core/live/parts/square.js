// A square of the plane with a drawing and handles in it.

import { html, svg, width_of } from "./dom.js";
import { make_handles } from "./handles.js";

// draw(look, what) → {label, marks}: the picture's name and its SVG; look = {size, at([x, y]) → pixels,
// within([x, y]), line(points) → the points of a polyline}. → {node, show(what, handles)}
export function make_square(edge, draw) {
  const picture = svg("svg", { role: "img" });
  const layer = html("div", { class: "layer" });
  const handles = make_handles(layer, edge);
  const node = html("div", { class: "plane" }, picture, layer);
  let again = () => {};
  const width = width_of(picture, node, 320, () => again());

  function paint(what) {
    const size = width();
    const at = ([x, y]) => [(size * (x + edge)) / (2 * edge), (size * (edge - y)) / (2 * edge)];
    const within = (theta) =>
      [...theta].map((value) => Math.max(-edge * 0.985, Math.min(edge * 0.985, value)));
    const line = (points) =>
      points
        .map((one) =>
          at(one)
            .map((value) => value.toFixed(1))
            .join(","),
        )
        .join(" ");
    const { label, marks } = draw({ size, at, within, line }, what);
    picture.setAttribute("viewBox", `0 0 ${size} ${size}`);
    picture.setAttribute("aria-label", label);
    picture.replaceChildren(...marks);
  }

  return {
    node,
    show(what, things) {
      again = () => paint(what);
      again();
      handles.show(things);
    },
  };
}
