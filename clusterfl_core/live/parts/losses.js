// The loss over the rounds, as a line.

import { digits, html, svg, width_of } from "./dom.js";

const HEIGHT = 96;

// → {node, show(losses)}: mean loss of each round from 0.
export function make_losses() {
  const picture = svg("svg", { role: "img", class: "chart", height: HEIGHT });
  const node = html("figure", {}, html("figcaption", {}, "Mean loss over the rounds"), picture);
  let shown_losses = [];
  const wide = width_of(picture, node, 300, () => made.show(shown_losses));
  const made = {
    node,
    show(losses) {
      shown_losses = losses;
      const width = Math.max(120, wide());
      const [left, right, top, bottom] = [6, 44, 8, 18];
      const rounds = Math.max(8, losses.length - 1);
      const most = Math.max(...losses.slice(0, 400), 1e-12);
      const x = (t) => left + ((width - left - right) * t) / rounds;
      const y = (loss) => top + (HEIGHT - top - bottom) * (1 - loss / most);
      const points = losses.map((loss, t) => `${x(t).toFixed(1)},${y(loss).toFixed(1)}`);
      const last = losses.length - 1;
      picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
      picture.setAttribute(
        "aria-label",
        `Mean loss: ${digits(losses[0])} in round 0` +
          `${last ? `, ${digits(losses[last])} in round ${last}` : ""}.`,
      );
      picture.replaceChildren(
        svg("path", {
          class: "axis",
          d: `M${left} ${HEIGHT - bottom}H${width - right}M${left} ${top}V${HEIGHT - bottom}`,
        }),
        svg("polyline", { class: "line", points: points.join(" ") }),
        svg("circle", { class: "dot", r: 3.5, cx: x(last), cy: y(losses[last]) }),
        svg(
          "text",
          { x: x(last) + 7, y: Math.min(y(losses[last]) + 4, HEIGHT - bottom) },
          digits(losses[last]),
        ),
        svg("text", { x: left, y: HEIGHT - 3 }, "0"),
        svg("text", { x: width - right, y: HEIGHT - 3, "text-anchor": "end" }, `round ${rounds}`),
      );
    },
  };
  return made;
}
