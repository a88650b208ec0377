// Balance the arrows: how near to each other can directions stand that sum to zero?

import { cosine_similarity, cross_similarity, optimal_bipartition } from "../engine/similarity.js";
import { range } from "../engine/random.js";
import { digits, listed, svg } from "../parts/dom.js";
import { circles, freest } from "../parts/labels.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, group_mark } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const EDGE = 1.45; // of the picture; the circle has radius 1
const NAME_FAR = 31; // pixels from an arrow's mark to its name
const NEAR = 2; // degrees above the bound that count as reaching it
const SEEN =
  "Thin: directions on a circle. Thick: arrows as long as their weights, the longest drawn whole " +
  "(of all weights that balance, those with the largest product). " +
  "Marks: the two sides of the best cut. Arcs outside: the tree that joins neighbours; dashed: its " +
  "longest edge, where it is cut. Shaded: the half that holds all arrows, with their shortest sum " +
  "(dotted), where they cannot balance. The laboratory shows the plane; the lemma holds in any dimension.";

const radians = (degrees) => (degrees * Math.PI) / 180;
const degrees_of = ([x, y]) => (Math.atan2(y, x) * 180) / Math.PI;
const towards = (degrees, length = 1) => [
  length * Math.cos(radians(degrees)),
  length * Math.sin(radians(degrees)),
];
const turned = (degrees) => ((((degrees + 180) % 360) + 360) % 360) - 180;
const sum_of = (arrows, weights) =>
  [0, 1].map((a) => arrows.reduce((sum, one, j) => sum + weights[j] * one[a], 0));

// Neighbours around the circle: [one, next, degrees from one to the next].
function gaps_between(angles) {
  const order = angles.map((_, j) => j).sort((i, j) => angles[i] - angles[j]);
  return order.map((j, place) => {
    const next = order[(place + 1) % order.length];
    const around = place + 1 === order.length ? 360 : 0;
    return [j, next, angles[next] - angles[j] + around];
  });
}

// Of all positive weights with which the arrows sum to zero, those with the largest product: they are
// 1 / k(1 + l.v_j), and l minimises - sum log(1 + l.v_j). Newton's steps, halved while they leave it.
function balancing_weights(arrows) {
  let l = [0, 0];
  const lifts = (at) => arrows.map(([x, y]) => 1 + at[0] * x + at[1] * y);
  const height = (at) => {
    const found = lifts(at);
    return found.some((one) => one <= 0)
      ? Infinity
      : -found.reduce((sum, one) => sum + Math.log(one), 0);
  };
  for (let round = 0; round < 60; round++) {
    const [slope, bend] = [
      [0, 0],
      [0, 0, 0],
    ];
    lifts(l).forEach((lift, j) => {
      const [x, y] = arrows[j].map((one) => one / lift);
      slope[0] -= x;
      slope[1] -= y;
      bend[0] += x * x;
      bend[1] += x * y;
      bend[2] += y * y;
    });
    const whole_bend = bend[0] * bend[2] - bend[1] * bend[1];
    const way = [
      -(bend[2] * slope[0] - bend[1] * slope[1]) / whole_bend,
      -(bend[0] * slope[1] - bend[1] * slope[0]) / whole_bend,
    ];
    const step_to = (part) => [l[0] + part * way[0], l[1] + part * way[1]];
    let part = 1;
    while (part > 1e-12 && height(step_to(part)) > height(l)) part /= 2;
    if (part <= 1e-12) break;
    l = step_to(part);
  }
  const weights = lifts(l).map((lift) => 1 / lift);
  const total = weights.reduce((sum, one) => sum + one, 0);
  return weights.map((one) => one / total);
}

// All that follows from k directions.
function looked_at({ k, angles }) {
  const own = angles.slice(0, k);
  const arrows = own.map((angle) => towards(angle));
  const gaps = gaps_between(own).sort((one, other) => other[2] - one[2]);
  const [[last, first, widest], ...tree] = gaps; // the tree leaves out the widest gap
  const balanced = widest < 180 - 1e-9;
  // Else all stand in one half of the circle; the shortest sum is on the line from end to end.
  const weights = balanced
    ? balancing_weights(arrows)
    : own.map((_, j) => (j === first || j === last ? 0.5 : 0));
  const alpha = cosine_similarity(arrows);
  const halves = optimal_bipartition(alpha);
  return {
    own,
    arrows,
    tree,
    balanced,
    weights,
    halves,
    omega: (Math.acos(cross_similarity(alpha, ...halves)) * 180) / Math.PI,
    bound: 180 / (k - 1),
    left: Math.hypot(...sum_of(arrows, weights)),
    middle: own[first] + (360 - widest) / 2, // of the arc that holds all
  };
}

// The pixel where the name of an arrow has its middle, beyond its mark and the tree.
function named_at([x, y], angle) {
  const [right, up] = towards(angle, NAME_FAR);
  return [x + right, y - up];
}

function drawn(
  { size, at, line },
  { own, arrows, tree, balanced, weights, omega, middle, halves },
) {
  const place = (angle, length) => at(towards(angle, length));
  const arc = (from, to, radius) => {
    const steps = Math.max(2, Math.ceil((to - from) / 4));
    return line(
      Array.from({ length: steps + 1 }, (_, s) =>
        towards(from + ((to - from) * s) / steps, radius),
      ),
    );
  };
  const most = Math.max(...weights);
  const side = (j) => (halves[0].includes(j) ? 0 : 1);
  const marks = [
    svg("circle", { class: "grid", cx: size / 2, cy: size / 2, r: size / (2 * EDGE) }),
    ...(balanced
      ? []
      : [
          svg("polygon", {
            class: "border",
            fill: "currentColor",
            points: `${arc(middle - 90, middle + 90, 1)}`,
          }),
        ]),
    ...arrows.map((tip) => {
      const [x, y] = at(tip);
      return svg("path", { class: "axis", d: `M${size / 2} ${size / 2}L${x} ${y}` });
    }),
    ...own.map((angle, j) => {
      const [x, y] = place(angle, (0.9 * weights[j]) / most);
      return svg("path", {
        d: `M${size / 2} ${size / 2}L${x} ${y}`,
        stroke: colour_of(side(j)),
        "stroke-width": 5,
        "stroke-linecap": "round",
      });
    }),
    ...tree.map(([j, , gap], edge) =>
      svg("polyline", {
        class: "trail",
        stroke: "currentColor",
        points: arc(own[j], own[j] + gap, 1.16),
        "stroke-dasharray": edge === 0 ? "5 4" : "none",
      }),
    ),
    ...(balanced
      ? []
      : [
          svg("polyline", {
            class: "trail",
            stroke: "currentColor",
            "stroke-dasharray": "2 3",
            points: line([[0, 0], sum_of(arrows, weights)]),
          }),
        ]),
    (([j, , gap]) => {
      const words = `ω ${digits(omega, 0)}°`;
      const marks_there = [
        ...circles(arrows.map(at), 11),
        ...circles(own.map((angle) => named_at(place(angle, 1), angle)), 8),
      ];
      const arcs = tree.flatMap(([one, , wide]) =>
        range(25).map((s) => place(own[one] + (s * wide) / 24, 1.16)),
      );
      const places = [0.5, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8].flatMap((part) =>
        [1.33, 1.02, 0.85].map((far) => {
          const [x, y] = place(own[j] + part * gap, far);
          return [x, y + 4, "middle"];
        }),
      );
      const taken = [...marks_there, ...circles(arcs, 3)];
      return svg("text", freest(places, words, taken, size), words);
    })(tree[0]),
  ];
  const label =
    `Circle with ${own.length} arrows at ${listed(own.map((one) => `${digits(one, 0)}°`))}. ` +
    `${balanced ? "They can balance" : "They cannot balance"}.`;
  return { label, marks };
}

laboratory("balance", {
  title: "balance the arrows",
  compute: looked_at,
  told({ k }, { balanced, omega, bound, halves }) {
    const verdict = balanced
      ? `The ${k} arrows balance`
      : `All ${k} arrows stand in one half of the circle: no positive weights balance them`;
    const sides = halves.map((half) => listed(half)).join(" against ");
    return (
      `${verdict}. Best cut: ${sides}, ${digits(omega, 1)}° apart; ` +
      `the lemma promises ${digits(bound, 1)}° to arrows that balance.`
    );
  },
  readings: (_, { omega, bound, left }) => [
    ["angle across the best cut, ω", omega, 1, "°"],
    ["the lemma's angle, π/(k − 1)", bound, 1, "°"],
    ["length of the shortest sum", left, 3],
  ],
  python: ({ k, angles }, { weights }) =>
    [
      "import clusterfl_core as cf",
      "import numpy as np",
      "import torch",
      "",
      `angles = np.radians([${angles.slice(0, k).join(", ")}])`,
      "arrows = np.stack([np.cos(angles), np.sin(angles)], axis=1)",
      `weights = np.array([${weights.join(", ")}])  # as the laboratory found them`,
      "assert (weights >= 0).all() and np.isclose(weights.sum(), 1)",
      "alpha = cf.cfl.cosine_similarity(torch.tensor(arrows))",
      "one, other = cf.cfl.optimal_bipartition(alpha)",
      "across = float(alpha[one][:, other].max())",
      `print(np.degrees(np.arccos(across)), 180 / ${k - 1}, np.linalg.norm(weights @ arrows))`,
      "",
    ].join("\n"),
  task({ k }, { balanced, omega, bound }, _, memory) {
    if (!balanced)
      return ["They do not balance. Spread them over more than half of the circle.", false];
    if (k < 4) return ["Take at least four arrows.", false];
    memory.least = Math.min(memory.least ?? Infinity, omega - bound);
    const far = `${digits(omega - bound, 1)}° above the lemma's ${digits(bound, 1)}°`;
    if (omega - bound <= NEAR)
      return [`Solved: they balance, and the best cut is only ${far}.`, true];
    return [
      `They balance; the best cut is ${far}. Nearest so far: ${digits(memory.least, 1)}°.`,
      false,
      "balanced",
    ];
  },
  build(lab) {
    const square = make_square(EDGE, drawn);
    const handle = ({ state, found }, angle, j) => {
      const to = (degrees, begins) =>
        lab.change(
          { angles: state.angles.map((one, i) => (i === j ? turned(degrees) : one)) },
          begins,
        );
      const mark = found.halves[0].includes(j) ? 0 : 1;
      return {
        key: `${j}`,
        look: `${mark} ${angle}`,
        name: `arrow ${j}`,
        at: towards(angle),
        draw(x, y) {
          const [left, base] = named_at([x, y + 5], angle);
          return svg(
            "g",
            {},
            group_mark(mark, x, y, 10, { fill: colour_of(mark), class: "edge" }),
            svg("text", { x: left, y: base, class: "name", "text-anchor": "middle" }, `${j}`),
          );
        },
        moved: (at, begins) => to(Math.round(degrees_of(at)), begins),
        pressed: ([right, up], far) => to(angle - (far ? 10 : 1) * (right - up), true),
        range: [-180, 180, angle],
        said: `${digits(angle, 0)} degrees, weight ${digits(100 * found.weights[j], 1)} percent`,
      };
    };
    return {
      main: [square.node],
      side: [lab.control("k")],
      key: `${SEEN} Drag the marks, or turn them with the arrow keys (Shift: far).`,
      show: (now) =>
        square.show(
          now.found,
          now.found.own.map((angle, j) => handle(now, angle, j)),
        ),
    };
  },
});
