// Who chose which model: a row a model, a mark a client.

import { html, listed, svg } from "./dom.js";
import { colour_of, group_mark, ink_on, spoken_mark } from "./marks.js";

const SIZE = 16;

// → {node, show(identities, clusters, models)}
export function make_identities(words = "Who chooses which model") {
  const body = html("tbody");
  const node = html("table", { class: "identities" }, html("caption", {}, words), body);
  return {
    node,
    show(identities, clusters, models) {
      const groups = Math.max(...clusters) + 1;
      body.replaceChildren(
        ...Array.from({ length: models }, (_, j) => {
          const chosen = clusters.filter((_, i) => identities[i] === j).sort((a, b) => a - b);
          const parts = Array.from({ length: groups }, (_, g) => [
            chosen.filter((c) => c === g).length,
            spoken_mark(g),
          ]);
          const said =
            listed(
              parts.filter(([count]) => count).map(([count, mark]) => `${count} of group ${mark}`),
            ) || "nobody";
          const swatch = html(
            "span",
            { class: "swatch", style: `background:${colour_of(j)};color:${ink_on(colour_of(j))}` },
            `${j}`,
          );
          const marks = chosen.map((group) =>
            svg(
              "svg",
              { width: SIZE, height: SIZE, viewBox: "-8 -8 16 16" },
              group_mark(group, 0, 0, 5.5, { fill: "currentColor" }),
            ),
          );
          const shown_marks = html(
            "span",
            { class: "marks", "aria-hidden": "true" },
            ...(marks.length ? marks : ["nobody"]),
          );
          return html(
            "tr",
            {},
            html("th", { scope: "row" }, html("span", { class: "quiet" }, "model "), swatch),
            html("td", {}, shown_marks, html("span", { class: "spoken" }, said)),
          );
        }),
      );
    },
  };
}
