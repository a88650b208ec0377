// Springs and collapse: FedSoft's centres, averaged or regressed, with exact losses in the plane.

import { aggregation_weights, blend } from "../engine/fedsoft.js";
import { range } from "../engine/random.js";
import { button } from "../parts/controls.js";
import { digits, kept_number, svg } from "../parts/dom.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, model_mark, truth_mark } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const EDGE = 2.5;
const CLIENTS = 10;
const CURVE = 2; // of all losses, |w - own best|^2
const STILL = 1e-5;
const [COLLAPSED, HOME] = [0.4, 0.05]; // what the task asks for
const NEVER = TABLE.after.high;
const ASKED = 3; // rounds before the laboratory says where the mean rests: it is asked

const apart = ([x, y], [u, v]) => Math.hypot(x - u, y - v);
const product = (one, other) => one.map((row) => blend(other, row));

// X of M X = R, M [2][2], R [2][…].
function solved([[a, b], [c, d]], [one, other]) {
  const det = a * d - b * c;
  return [
    one.map((value, i) => (d * value - b * other[i]) / det),
    one.map((value, i) => (a * other[i] - c * value) / det),
  ];
}

// u_ij [10][2]: five clients with q and five with 1 - q of truth 0, or evenly between.
function shares_of({ share, pattern }) {
  return range(CLIENTS).map((i) => {
    const t = pattern === "two" ? Number(i >= CLIENTS / 2) : i / (CLIENTS - 1);
    const first = share + t * (1 - 2 * share);
    return [first, 1 - first];
  });
}

// What the server knows: V (10.6), B = V U, and the regression's weights, B^-1 V. A millionth of the
// unit matrix added to B leaves the mean where mixtures are equal, as in the library.
function server_of(state) {
  const shares = shares_of(state);
  const mean = aggregation_weights(shares, Array(CLIENTS).fill(1));
  const mixing = product(mean, shares).map((row, j) =>
    row.map((value, l) => value * (1 - 1e-6) + (j === l ? 1e-6 : 0)),
  );
  return { shares, mean, mixing, regression: solved(mixing, mean) };
}

// argmin of F_i + (lambda / 2) sum_j u_ij |w - c_j|^2 for each client.
function personal_models({ truths, proximal }, shares, centers) {
  const part = proximal / (CURVE + proximal);
  return shares.map((row) => {
    const [own, held] = [blend(truths, row), blend(centers, row)];
    return own.map((value, a) => (1 - part) * value + part * held[a]);
  });
}

// Where the mean rests: C = B (Theta (1 - l) + C l).
function resting({ truths, proximal }, { mixing }) {
  const part = proximal / (CURVE + proximal);
  const left = mixing.map((row, j) => row.map((value, l) => (j === l ? 1 : 0) - part * value));
  const side = product(mixing, truths).map((row) => row.map((value) => (1 - part) * value));
  return solved(left, side);
}

function looked_at(state, path) {
  const gap = apart(...state.truths);
  if (gap < 0.1) throw new Error("The two truths must lie apart");
  const server = server_of(state);
  const { centers } = path.at(-1);
  const unmixed = solved(server.mixing, centers);
  const rest = resting(state, server);
  const farthest = (points) => Math.max(...points.map((c, j) => apart(c, state.truths[j])));
  return {
    ...server,
    centers,
    unmixed,
    rest,
    personal: personal_models(state, server.shares, centers),
    kept: apart(...centers) / gap,
    rests: apart(...rest) / gap,
    far: farthest(centers),
    unmixed_far: farthest(unmixed),
  };
}

// A spring from one pixel to another.
function spring_path([x, y], [u, v]) {
  const long = Math.hypot(u - x, v - y) || 1;
  const turns = 14;
  const wide = Math.min(4, long / 12);
  const points = range(turns + 1).map((s) => {
    const side = s < 2 || s > turns - 2 ? 0 : s % 2 ? wide : -wide;
    const t = s / turns;
    const across = (side * (v - y)) / long;
    return `${(x + t * (u - x) - across).toFixed(1)} ${(y + t * (v - y) + (side * (u - x)) / long).toFixed(1)}`;
  });
  return `M${points.join("L")}`;
}

function plane_drawn({ at, within, line }, { state, found, path }) {
  const { centers, personal, shares, unmixed } = found;
  const ways = [0, 1].map((j) => path.map((frame) => within(frame.centers[j])));
  const ends = personal.map((w) => at(within(w)));
  const held = state.pattern === "two" ? [0, CLIENTS - 1] : [0, 3, 6, CLIENTS - 1];
  const marks = [
    svg("polyline", { class: "axis", points: line(state.truths), "stroke-width": 1.5 }),
    ...(state.proximal > 0
      ? held.flatMap((i) =>
          centers.map((center, j) =>
            svg("path", {
              d: spring_path(ends[i], at(within(center))),
              fill: "none",
              stroke: colour_of(j),
              "stroke-opacity": 0.75,
              "stroke-width": 0.5 + 2.5 * shares[i][j],
            }),
          ),
        )
      : []),
    ...ways.map((way, j) =>
      svg("polyline", {
        class: "trail",
        stroke: colour_of(j),
        "stroke-dasharray": j ? "5 3" : "none",
        points: line(way),
      }),
    ),
    ...ways.flatMap((way) =>
      way.map((place) => {
        const [cx, cy] = at(place);
        return svg("circle", { cx, cy, r: 2, fill: "currentColor" });
      }),
    ),
    ...ends.map(([cx, cy]) => svg("circle", { class: "edge", cx, cy, r: 5, fill: "currentColor" })),
    ...(state.inverse
      ? unmixed.map((center, j) => {
          const [x, y] = at(within(center));
          return svg(
            "g",
            {},
            svg("rect", {
              x: x - 7,
              y: y - 7,
              width: 14,
              height: 14,
              fill: "none",
              stroke: colour_of(j),
              "stroke-width": 2.5,
            }),
            svg("text", { x: x - 10, y: y + 18, class: "name", "text-anchor": "end" }, `${j}`),
          );
        })
      : []),
  ];
  const where = (points) => points.map((one) => one.map((v) => digits(v, 1)).join(", ")).join("; ");
  return {
    label: `Plane of models: truths at ${where(state.truths)}; centres at ${where(centers)}.`,
    marks,
  };
}

laboratory("springs", {
  title: "springs and collapse",
  first: (state) => ({ centers: state.centers.map((row) => [...row]), round: 0 }),
  next(state, { centers, round }) {
    const { shares, mean, regression } = server_of(state);
    const weights = round < state.after ? mean : regression;
    return {
      centers: product(weights, personal_models(state, shares, centers)),
      round: round + 1,
    };
  },
  rest(_, __, path) {
    if (path.length < 2) return false;
    const [before, after] = path.slice(-2);
    return before.centers.every((center, j) => apart(center, after.centers[j]) < STILL);
  },
  compute: looked_at,
  changes: Object.fromEntries(
    ["share", "pattern", "proximal"].map((entry) => [entry, () => ({ rounds: 0, after: NEVER })]),
  ),
  told: (state, { kept, far }) =>
    `Round ${state.rounds}. The server ${state.rounds < state.after ? "averages" : `regresses since round ${state.after}`}. ` +
    `The centres stand ${digits(kept, 2)} of the true gap apart; the farther one is ` +
    `${digits(far, 2)} from its truth.`,
  readings: (state, { kept, rests, far, unmixed_far }) => [
    ["gap of the centres (truth: 1)", kept, 3],
    ["gap where the mean rests", state.rounds < ASKED ? `after ${ASKED} rounds` : rests, 3],
    ["farthest from its truth", far, 3],
    ["the same, un-mixed", unmixed_far, 3],
  ],
  python: ({ share, pattern, proximal, after, truths, centers, rounds }) =>
    [
      "import clusterfl_core as cf",
      "import numpy as np",
      "import torch",
      "",
      `truths = np.array(${JSON.stringify(truths)})`,
      `centers = np.array(${JSON.stringify(centers)})`,
      pattern === "two"
        ? `first = np.repeat([${share}, 1 - ${share}], 5)`
        : `first = np.linspace(${share}, 1 - ${share}, 10)`,
      "u = np.stack([first, 1 - first], 1)",
      "n = torch.ones(10, dtype=torch.float64)",
      "v = cf.fedsoft.aggregation_weights(torch.tensor(u), n).numpy()",
      "mixing = (1 - 1e-6) * v @ u + 1e-6 * np.eye(2)",
      "",
      "",
      "def farthest(points):",
      "    return np.linalg.norm(points - truths, axis=1).max()",
      "",
      "",
      `for t in range(${rounds}):`,
      `    w = u @ (2 * truths + ${proximal} * centers) / (2 + ${proximal})`,
      `    centers = v @ w if t < ${after} else np.linalg.solve(mixing, v @ w)`,
      "gap = np.linalg.norm(truths[0] - truths[1])",
      "print(np.linalg.norm(centers[0] - centers[1]) / gap)",
      ...(rounds < ASKED
        ? []
        : [
            `rest = cf.theory.soft_centers(truths, u, v, proximal=${proximal})`,
            "print(np.linalg.norm(rest[0] - rest[1]) / gap)",
          ]),
      "print(farthest(centers), farthest(np.linalg.solve(mixing, centers)))",
      "",
    ].join("\n"),
  task({ truths, after, proximal, rounds }, { far }, path) {
    const gap = apart(...truths);
    const gaps = path.slice(0, after + 1).map(({ centers }) => apart(...centers) / gap);
    const least = Math.min(...gaps);
    const collapsed = gaps.length > 1 && least <= COLLAPSED;
    if (!collapsed)
      return [
        `The centres stand ${digits(gaps.at(-1), 2)} of the gap apart: play on, or mix the clients more.`,
        false,
      ];
    if (rounds > after && far <= HOME && proximal > 0)
      return [
        `Solved: collapsed to ${digits(least, 2)} of the gap, and at home ${rounds - after} rounds after the change, springs on.`,
        true,
      ];
    return [
      `Collapsed to ${digits(least, 2)} of the gap. ` +
        (proximal > 0
          ? `Now bring them home: the farther centre is ${digits(far, 2)} away.`
          : "Switch the springs on."),
      false,
      "collapsed",
    ];
  },
  buttons: (lab) => [
    button("Regress from here", () => lab.change({ after: lab.keeping.state.rounds })),
    button("Average from here", () =>
      lab.change({
        centers: lab.keeping.found.centers.map((row) =>
          row.map((value) => kept_number(Math.max(-EDGE, Math.min(EDGE, value)))),
        ),
        rounds: 0,
        after: NEVER,
      }),
    ),
  ],
  build(lab) {
    const square = make_square(EDGE, plane_drawn);
    const thing = (entry, j, name, at, draw) => ({
      key: `${entry}${j}`,
      name: `${name} ${j}`,
      at,
      draw,
      moved(place, begins) {
        const rows = entry === "truths" ? lab.keeping.state.truths : lab.keeping.found.centers;
        const limited = rows.map((row, i) =>
          (i === j ? place : row).map((value) => kept_number(Math.max(-EDGE, Math.min(EDGE, value)))),
        );
        lab.change({ [entry]: limited, rounds: 0, after: NEVER }, begins);
      },
    });
    return {
      main: [square.node],
      side: ["share", "pattern", "proximal", "inverse"].map((entry) => lab.control(entry)),
      key:
        "Stars: the true models. Crosses: the server's centres, with their way. Dots: the personal " +
        "models of ten clients, and springs of some of them, as thick as their shares. Empty squares: " +
        "the centres un-mixed by the inverse of V U, which the server does not send. Drag stars and " +
        "crosses; then the run begins anew. Losses are exact bowls of one curvature, and the shares " +
        "are known: no noise, no votes, everybody answers.",
      show(now) {
        const { state, found } = now;
        square.show({ state, found, path: now.path }, [
          ...state.truths.map((place, j) =>
            thing("truths", j, "truth", place, (x, y) => truth_mark(j, x, y, 14)),
          ),
          ...found.centers.map((place, j) =>
            thing("centers", j, "centre", place, (x, y) => model_mark(j, x, y, 10)),
          ),
        ]);
      },
    };
  },
});
