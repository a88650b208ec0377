// Wedges: which points vote for the wrong model, and how slowly their share falls.

import { stream } from "../engine/random.js";
import { make_chart } from "../parts/chart.js";
import { digits, listed, svg } from "../parts/dom.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const POINTS = 2000;
const EDGE = 3.2; // of the picture
const HEAD = 20; // pixels: above and below the strip, where names stand
const HANDLE = 2.75; // from the middle to the handles
const GOAL = { share: 0.01, distance: 8, kept: POINTS / 2 };
const DISTANCES = Array.from({ length: 57 }, (_, step) => 0.25 * 2 ** (step / 8));
const SEEN =
  "Left: 2,000 points of group 0; upwards the noise, to the right z, the input along the way from " +
  "model 0 to model 1. Dots vote for model 0; crosses, in the two shaded wedges, for model 1, which " +
  "is wrong. Right: the share of crosses at every distance, counted and by (11.1), and the law Δ⁻⁴ " +
  "from the left edge on. Drag the wedge's edge, or the edge of the strip that is left out. Both " +
  "models are the true ones; inputs and noise are normal.";

const chance = (distance) => Math.atan(2 / distance) / Math.PI; // (11.1)
const percent = (share, count = 1) => `${digits(100 * share, count)} %`;

let drawn_points = { draw: null, points: [] };
function points_of(draw) {
  if (drawn_points.draw !== draw) {
    const source = stream(draw, "wedges");
    const points = Array.from({ length: POINTS }, () => [source.normal(), source.normal()]);
    drawn_points = { draw, points };
  }
  return drawn_points.points;
}

// The model 0 misses a point by its noise, the model 1 by noise - distance z.
const votes_wrongly = (noise, z, distance) => Math.abs(noise - distance * z) < Math.abs(noise);

function counted_at({ distance, least, draw }) {
  const kept = points_of(draw).filter(([, z]) => Math.abs(z) >= least);
  const wrong = kept.filter(([noise, z]) => votes_wrongly(noise, z, distance));
  // A point votes wrongly up to the distance 2 noise / z, so one sorting counts at all distances.
  const until = kept.map(([noise, z]) => (2 * noise) / z).sort((one, other) => other - one);
  const curve = DISTANCES.map((far) => {
    const first = until.findIndex((one) => one <= far);
    return [far, (first < 0 ? until.length : first) / kept.length];
  });
  const angle = (Math.atan(2 / distance) * 180) / Math.PI;
  return { kept, wrong, share: wrong.length / kept.length, curve, angle };
}

const arm = (angle, length) => [
  length * Math.sin((angle * Math.PI) / 180),
  length * Math.cos((angle * Math.PI) / 180),
];

function drawn_wedges({ size, at, line }, { state, found }) {
  const { kept, wrong, angle, share } = found;
  const lost = new Set(wrong);
  const path = (points, mark) =>
    points
      .map(([noise, z]) => {
        const [x, y] = at([z, noise]);
        return `M${x.toFixed(1)} ${y.toFixed(1)}${mark}`;
      })
      .join("");
  const wedge = (sign) =>
    svg("polygon", {
      class: "border",
      fill: colour_of(1),
      points: line([[0, 0], [0, sign * 6], arm(angle / 2, sign * 9), arm(angle, sign * 6)]),
    });
  const [from] = at([-state.least, 0]);
  const marks = [
    svg("path", { class: "axis", d: `M${size / 2} 0V${size}M0 ${size / 2}H${size}` }),
    svg("path", {
      d: path(
        kept.filter((one) => !lost.has(one)),
        "h0",
      ),
      stroke: colour_of(0),
      "stroke-width": 2.4,
      "stroke-linecap": "round",
    }),
    wedge(1),
    wedge(-1),
    svg("path", {
      d: path(wrong, "m-2 -2l4 4m0 -4l-4 4"),
      stroke: colour_of(1),
      "stroke-width": 1.3,
    }),
    ...(state.least
      ? [
          svg("rect", {
            x: from,
            y: HEAD,
            width: size - 2 * from,
            height: size - 2 * HEAD,
            fill: "currentColor",
            "fill-opacity": 0.09,
            stroke: "currentColor",
            "stroke-dasharray": "4 3",
          }),
        ]
      : []),
    svg("text", { x: size / 2 - 6, y: 14, class: "name", "text-anchor": "end" }, "noise"),
    svg("text", { x: size - 6, y: size / 2 + 16, class: "name", "text-anchor": "end" }, "z"),
    svg(
      "text",
      { x: size - 6, y: size - 52, class: "name", "text-anchor": "end" }, // above the handle
      `arctan(2/Δ) = ${digits(angle, 1)}°`,
    ),
  ];
  const label =
    `Noise against z of ${kept.length} points. Two wedges of ${digits(angle, 1)} degrees hold ` +
    `the ${percent(share)} that vote wrongly.`;
  return { label, marks };
}

laboratory("wedges", {
  title: "wedges",
  *prepare({ draw }) {
    yield points_of(draw);
  },
  compute: counted_at,
  told: ({ distance, least }, { kept, wrong, angle }) =>
    `Models ${digits(distance, 2)} apart: wedges of ${digits(angle, 1)}°. ` +
    `Of ${kept.length} points${least ? ` with |z| of at least ${digits(least, 2)}` : ""}, ` +
    `${wrong.length} vote wrongly.`,
  readings: ({ distance }, { kept, share }) => [
    ["points kept", kept.length, 0],
    ["vote wrongly, counted", 100 * share, 2, " %"],
    ["(11.1), if none is left out", 100 * chance(distance), 2, " %"],
  ],
  python: ({ distance, least, draw }) =>
    [
      "import clusterfl_core as cf",
      "from clusterfl_core.live.random import stream",
      "",
      `points = stream(${draw}, "wedges").normal(${2 * POINTS}).reshape(-1, 2)`,
      "noise, z = points.T",
      `kept = abs(z) >= ${least}`,
      `wrong = abs(noise - ${distance} * z) < abs(noise)`,
      `exact = cf.theory.misclassification([0], [${distance}], [0], 1.0, 1)`,
      "print(kept.sum(), 100 * wrong[kept].mean(), 100 * exact)",
      "",
    ].join("\n"),
  task({ distance, least }, { kept, share }, _, memory) {
    const [apart, few] = [distance - GOAL.distance, GOAL.kept - kept.length];
    const now = `${percent(share, 2)} of ${kept.length} points vote wrongly at Δ = ${digits(distance, 2)}`;
    const allowed = apart <= 0 && few <= 0;
    if (allowed) memory.fewest = Math.min(memory.fewest ?? 1, share);
    if (allowed && share <= GOAL.share) return [`Solved: ${now}.`, true];
    if (!allowed) {
      const missing = [
        ...(apart > 0 ? [`the models stand ${digits(apart)} too far apart`] : []),
        ...(few > 0 ? [`${few} points too few are kept`] : []),
      ];
      return [`${now}. It does not count: ${listed(missing)}.`, false];
    }
    const allowance = `Allowed is ${percent(GOAL.share, 0)}, and ${-few} more may be left out`;
    return [`${now}. ${allowance}. Fewest so far: ${percent(memory.fewest, 2)}.`, false];
  },
  build(lab) {
    const square = make_square(EDGE, drawn_wedges);
    const chart = make_chart({
      tall: 220,
      caption: "Share of wrong votes against Δ",
      x: {
        low: 0.25,
        high: 32,
        log: true,
        ticks: [
          [0.25, "¼"],
          [1, "1"],
          [4, "4"],
          [8, "8"],
          [32, "32"],
        ],
        words: "distance Δ of the models",
      },
      y: {
        low: 0.0005,
        high: 0.6,
        log: true,
        ticks: [
          [0.001, "0.1 %"],
          [0.01, "1 %"],
          [0.1, "10 %"],
          [0.5, "50 %"],
        ],
      },
    });
    const to = (entry, value, begins) => {
      const { low, high, by } = TABLE[entry];
      const stepped = Math.round(Math.round(value / by) * by * 100) / 100;
      lab.change({ [entry]: Math.min(high, Math.max(low, stepped)) }, begins);
    };
    const turn = (angle, begins) =>
      to("distance", 2 / Math.tan((Math.min(85, Math.max(1, angle)) * Math.PI) / 180), begins);
    const ring = (x, y) => svg("circle", { cx: x, cy: y, r: 8, class: "edge", fill: "Canvas" });
    const handles = ({ state, found }) => [
      {
        key: "wedge",
        name: "edge of the wedge",
        at: arm(found.angle, HANDLE),
        draw: (x, y) =>
          svg("g", {}, ring(x, y), svg("circle", { cx: x, cy: y, r: 3.5, fill: colour_of(1) })),
        moved: ([x, y], begins) => turn((Math.atan2(x, y) * 180) / Math.PI, begins),
        pressed: ([right, up], far) =>
          to("distance", state.distance - (right - up) * (far ? 2 : 0.25), true),
        range: [3, 83, found.angle],
        said: `${digits(found.angle, 1)} degrees, distance ${digits(state.distance, 2)}`,
      },
      {
        key: "strip",
        name: "edge of what is left out",
        at: [state.least, -HANDLE],
        draw: (x, y) =>
          svg("g", {}, ring(x, y), svg("path", { d: `M${x} ${y - 4}v8`, class: "edge" })),
        moved: ([x], begins) => to("least", x, begins),
        pressed: ([right, up], far) =>
          to("least", state.least + (right + up) * (far ? 0.25 : 0.05), true),
        range: [0, 1.5, state.least],
        said: `${digits(state.least, 2)}, ${found.kept.length} points stay`,
      },
    ];
    return {
      main: [square.node],
      side: [lab.control("distance"), lab.control("least"), lab.control("draw"), chart.node],
      key: SEEN,
      show(now) {
        const { state, found } = now;
        square.show({ state, found }, handles(now));
        chart.show(
          `Share of wrong votes at distance ${digits(state.distance, 2)}: ` +
            `${percent(found.share)} counted, ${percent(chance(state.distance))} by the formula.`,
          [
            {
              points: DISTANCES.map((far) => [far, chance(0.25) * (far / 0.25) ** -4]),
              name: "Δ⁻⁴",
              dash: "2 3",
            },
            {
              points: DISTANCES.map((far) => [far, chance(far)]),
              name: "(11.1)",
              under: true,
              dash: "6 4",
            },
            { points: found.curve, name: "counted", colour: colour_of(1), wide: 2.6, back: 14 },
            {
              at: [state.distance, found.share],
              draw: (x, y) =>
                svg("circle", { cx: x, cy: y, r: 5, fill: colour_of(1), class: "edge" }),
            },
          ],
        );
      },
    };
  },
});
