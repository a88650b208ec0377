// Named numbers. What the page shows rounded is in <data> as it was computed: "Copy as Python"
// prints the same numbers in the same order.

import { digits, html } from "./dom.js";

// → {node, show(readings)}; a reading: [words, value, decimals, unit], value a number, a list of numbers,
// null where there is none, or a text that says why not yet.
export function make_readings() {
  const node = html("dl", { class: "readings" });
  const one = (value, count) => html("data", { value }, digits(value, count));
  const shown_value = (value, count) => {
    if (value === null || typeof value === "string") return [value ?? "none"];
    if (typeof value === "number") return [one(value, count)];
    return ["(", ...value.flatMap((v, a) => (a ? [", ", one(v, count)] : [one(v, count)])), ")"];
  };
  return {
    node,
    show(readings) {
      node.replaceChildren(
        ...readings.map(([words, value, count = 2, unit = ""]) =>
          html(
            "div",
            {},
            html("dt", {}, words),
            html("dd", {}, ...shown_value(value, count), typeof value === "string" ? "" : unit),
          ),
        ),
      );
    },
  };
}
