// Wrong-choice compass: the chance (5.3) that a client prefers the wrong of two models.

import { range, stream } from "../engine/random.js";
import { contour } from "../parts/contour.js";
import { digits, svg } from "../parts/dom.js";
import { beside, circles, freest } from "../parts/labels.js";
import { laboratory } from "../parts/laboratory.js";
import { latest } from "../parts/latest.js";
import { colour_of, cross_mark, truth_mark } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const EDGE = 1.5;
const TRUTHS = [
  [0, 0],
  [1, 0],
];
const CELLS = 40; // of the map
const TONES = 12; // of grey
const LEVELS = [0.001, 0.01, 0.05, 0.1, 0.25, 0.5];
const NAMED = [0.01, 0.1, 0.5];
const CLIENTS = 200; // that are simulated
const DEALT = 40; // of them at a time
const NEAR = 0.2; // of each other, as the task asks
const WIDE = 3.3; // of the cloud's axes, in standard deviations

const minus = ([x, y], [u, v]) => [x - u, y - v];
const plus = ([x, y], [u, v]) => [x + u, y + v];
const long = ([x, y]) => Math.hypot(x, y);

// ---------------------------------------------------------------- the chance, exactly

const LANCZOS = [
  76.18009172947146, -86.50532032941677, 24.01409824083091, -1.231739572450155,
  0.1208650973866179e-2, -0.5395239384953e-5,
];

function log_gamma(x) {
  const high = x + 5.5;
  const series = LANCZOS.reduce((sum, part, j) => sum + part / (x + 1 + j), 1.000000000190015);
  return (x + 0.5) * Math.log(high) - high + Math.log((2.5066282746310005 * series) / x);
}

const log_gammas = latest((a) => log_gamma(2 * a) - 2 * log_gamma(a));
const sound = (value) => (Math.abs(value) < 1e-300 ? 1e-300 : value);

// I_x(a, a), the regularised incomplete beta function, by Lentz's continued fraction.
function beta_share(x, a) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > 0.5) return 1 - beta_share(1 - x, a);
  let c = 1;
  let d = 1 / sound(1 - (2 * a * x) / (a + 1));
  let found = d;
  for (let m = 1; m < 500; m++) {
    let last = 1;
    for (let half = 0; half < 2; half++) {
      const part = half
        ? (-(a + m) * (2 * a + m) * x) / ((a + 2 * m) * (a + 2 * m + 1))
        : (m * (a - m) * x) / ((a + 2 * m - 1) * (a + 2 * m));
      d = 1 / sound(1 + part * d);
      c = sound(1 + part / c);
      last = c * d;
      found *= last;
    }
    if (Math.abs(last - 1) < 1e-14) break;
  }
  const front = log_gammas(a) + a * Math.log(x * (1 - x));
  return (Math.exp(front) * found) / a;
}

// The correlation kappa of (5.2), between difference and sum of the residuals; errors: of the right model
// a and of the wrong one b. Two models that never differ in loss count as equally far.
function correlation([a, b], noise) {
  const scale = long(minus(a, b)) * Math.hypot(long(plus(a, b)), 2 * noise);
  if (!(scale > 0)) return 0;
  return Math.max(-1, Math.min(1, (long(a) ** 2 - long(b) ** 2) / scale));
}

const chance = (errors, { noise, points }) =>
  beta_share((1 + correlation(errors, noise)) / 2, points / 2);

const errors_of = (models) => models.map((theta) => minus(TRUTHS[0], theta));

// ---------------------------------------------------------------- simulated

const drawn_clients = new Map();

// Points of a client: [x1, x2, noise / sigma] each; the same in every state.
function client_points(i, points) {
  if (!drawn_clients.has(i)) {
    const source = stream(0, "clients", i);
    drawn_clients.set(
      i,
      range(TABLE.points.high).map(() => range(3).map(() => source.normal())),
    );
  }
  return drawn_clients.get(i).slice(0, points);
}

// Difference and sum of the two residuals of a point, each over its standard deviation.
function residuals([a, b], noise, [x, y, wobble]) {
  const [difference, sum] = [minus(a, b), plus(a, b)];
  return [
    (x * difference[0] + y * difference[1]) / (long(difference) || 1),
    (x * sum[0] + y * sum[1] + 2 * noise * wobble) / Math.hypot(long(sum), 2 * noise),
  ];
}

const simulated_with = latest(({ models, noise, points }) => {
  const errors = errors_of(models);
  const clouds = range(CLIENTS).map((i) =>
    client_points(i, points).map((point) => residuals(errors, noise, point)),
  );
  const wrong = clouds.map((own) => own.reduce((sum, [u, v]) => sum + u * v, 0) >= 0);
  return {
    simulated: wrong.filter(Boolean).length / CLIENTS,
    first: { cloud: clouds[0], wrong: wrong[0] },
    cloud: clouds.map(([point]) => point),
  };
});

// The chance wherever one model may stand, the other being held.
const chance_with =
  ({ held, moved, noise, points }) =>
  (x, y) => {
    const models = moved ? [held, [x, y]] : [[x, y], held];
    return chance(errors_of(models), { noise, points });
  };
const lines_of = latest((map) => contour(chance_with(map), EDGE, CELLS, LEVELS));
const shades_of = latest((map) => {
  const chance_at = chance_with(map);
  const middle = (i) => -EDGE + (EDGE * (2 * i + 1)) / CELLS;
  return range(CELLS).map((j) =>
    range(CELLS).map((i) => Math.round(TONES * chance_at(middle(i), middle(j)))),
  );
});
const map_of = ({ models, moved, noise, points }) => ({
  held: models[1 - Number(moved)],
  moved: Number(moved),
  noise,
  points,
});
const clients_of = ({ models, noise, points }) => ({ models, noise, points });

function looked_at(state) {
  const errors = errors_of(state.models);
  if (long(minus(...state.models)) < 1e-9) throw new Error("The two models must lie apart");
  return {
    chance: chance(errors, state),
    tilt: correlation(errors, state.noise),
    at_truths: chance(errors_of(TRUTHS), state),
    ...simulated_with(clients_of(state)),
    apart: long(minus(...state.models)),
    far: state.models.map(long),
    lines: lines_of(map_of(state)),
    shades: shades_of(map_of(state)),
  };
}

// ---------------------------------------------------------------- seen

function tints({ size, at }, { lines, shades }) {
  const side = (i) => Math.round((i * size) / CELLS);
  const runs = shades.flatMap((row, j) => {
    const begins = range(CELLS).filter((i) => i === 0 || row[i] !== row[i - 1]);
    return begins.map((from, r) => [j, from, begins[r + 1] ?? CELLS, row[from]]);
  });
  return [
    ...runs.map(([j, from, to, tone]) =>
      svg("rect", {
        x: side(from),
        y: side(CELLS - 1 - j),
        width: side(to) - side(from),
        height: side(CELLS - j) - side(CELLS - 1 - j),
        fill: "currentColor",
        "fill-opacity": (0.3 * tone) / TONES,
        "shape-rendering": "crispEdges",
      }),
    ),
    ...lines.map(([level, pieces]) =>
      svg("path", {
        class: "border",
        fill: "none",
        "stroke-width": level === 0.5 ? 2 : 1,
        d: pieces
          .map((ends) => {
            const [[x, y], [u, v]] = ends.map(at);
            return `M${x.toFixed(1)} ${y.toFixed(1)}L${u.toFixed(1)} ${v.toFixed(1)}`;
          })
          .join(""),
      }),
    ),
  ];
}

// The names of models and lines, none on a mark. The lowest place of a line comes first.
function names_on({ size, at }, { models }, { lines }) {
  const [spots, stars] = [models, TRUTHS].map((some) => some.map(at));
  const taken = [...circles(spots, 12), ...circles(stars, 13)];
  const name = (words, place) => {
    const wide = 4 * words.length;
    const sign = { start: 1, middle: 0, end: -1 }[place["text-anchor"]];
    taken.push({ x: place.x + sign * wide, y: place.y - 4, r: wide });
    return svg("text", { class: "name", ...place }, words);
  };
  const numbers = spots.map((spot, j) => name(`${j}`, beside(spot, 11, `${j}`, taken, size)));
  const levels = lines
    .filter(([level, pieces]) => NAMED.includes(level) && pieces.length)
    .map(([level, pieces]) => {
      const words = `${digits(100 * level, 0)} %`;
      const places = pieces
        .map(([end]) => at(end))
        .sort((one, other) => other[1] - one[1])
        .map(([x, y]) => [x, y + 13, "middle"]);
      return name(words, freest(places, words, taken, size));
    });
  return [...levels, ...numbers];
}

// Grey and lines change less often than what lies on them: they are drawn anew where they do.
function map_drawer() {
  let kept = { marks: [] };
  const tinted = (look, { lines, shades }) => {
    const { size } = look;
    if (kept.size !== size || kept.lines !== lines || kept.shades !== shades)
      kept = { size, lines, shades, marks: tints(look, { lines, shades }) };
    return kept.marks;
  };
  return (look, now) => map_drawn(look, now, tinted(look, now.found));
}

function map_drawn({ size, at, line }, { state, found }, tinted) {
  const { far } = found;
  const [ox, oy] = at([0, 0]);
  const scale = size / (2 * EDGE);
  const marks = [
    ...tinted,
    svg("polyline", {
      class: "trail",
      stroke: "currentColor",
      "stroke-dasharray": "5 4",
      points: line(state.models),
    }),
    ...far.map((radius, j) =>
      svg("circle", {
        cx: ox,
        cy: oy,
        r: radius * scale,
        fill: "none",
        stroke: colour_of(j),
        "stroke-dasharray": j ? "2 4" : "none",
      }),
    ),
    ...TRUTHS.map((truth, j) => truth_mark(j, ...at(truth), 13)),
    ...names_on({ size, at }, state, found),
  ];
  return {
    label:
      `Plane of models with the own truth at 0, 0 and the other one at 1, 0; right model ` +
      `${digits(far[0])} and wrong model ${digits(far[1])} away from the own truth.`,
    marks,
  };
}

function cloud_drawn({ size, at, line }, { found: { cloud, first, tilt } }) {
  const half = size / 2;
  const dot = (point, radius, attributes) => {
    const [cx, cy] = at(point.map((v) => Math.max(-WIDE, Math.min(WIDE, v))));
    return svg("circle", { cx: cx.toFixed(1), cy: cy.toFixed(1), r: radius, ...attributes });
  };
  const shade = (x, y) =>
    svg("rect", { x, y, width: half, height: half, fill: "currentColor", "fill-opacity": 0.1 });
  return {
    label:
      `Sum against difference of the residuals of both models; correlation ${digits(tilt)}. ` +
      `The client shown chooses the ${first.wrong ? "wrong" : "right"} model.`,
    marks: [
      shade(half, 0),
      shade(0, half),
      svg("path", { class: "grid", d: `M0 ${half}H${size}M${half} 0V${size}` }),
      ...cloud.map((point) => dot(point, 2, { fill: "currentColor", "fill-opacity": 0.35 })),
      ...first.cloud.map((point) =>
        dot(point, 4, { fill: colour_of(Number(first.wrong)), class: "edge" }),
      ),
      svg("polyline", {
        class: "trail",
        stroke: "currentColor",
        points: line([-WIDE, WIDE].map((u) => [u, tilt * u])),
      }),
      svg("text", { x: half + 4, y: 14 }, "r + r′"),
      svg("text", { x: size - 4, y: half - 5, "text-anchor": "end" }, "r − r′"),
    ],
  };
}

laboratory("compass", {
  title: "wrong-choice compass",
  *prepare(state) {
    for (let i = 0; i < CLIENTS; i++) {
      client_points(i, state.points);
      if (i % DEALT === 0) yield;
    }
    yield simulated_with(clients_of(state));
    yield shades_of(map_of(state));
    yield lines_of(map_of(state));
  },
  compute: looked_at,
  told: ({ points, noise }, found) =>
    `With ${points} ${points === 1 ? "point" : "points"} and noise ${digits(noise)} a client prefers ` +
    `the wrong model with a chance of ${digits(100 * found.chance, 2)} %. The models are ` +
    `${digits(found.apart)} apart; the client shown chooses ` +
    `${found.first.wrong ? "wrongly" : "rightly"}.`,
  readings: (_, found) => [
    ["chance, exact (5.3)", 100 * found.chance, 3, " %"],
    [`of ${CLIENTS} clients`, 100 * found.simulated, 1, " %"],
    ["with models at the truths", 100 * found.at_truths, 3, " %"],
    ["correlation κ", found.tilt, 3],
    ["right model to truth", found.far[0], 2],
    ["wrong model to truth", found.far[1], 2],
  ],
  python: ({ noise, points, models }) =>
    [
      "import numpy as np",
      "from clusterfl_core import theory",
      "from clusterfl_core.live.random import stream",
      "",
      `right, wrong = np.array(${JSON.stringify(models)})`,
      "own, other = np.zeros(2), np.array([1.0, 0.0])",
      `noise, points = ${noise}, ${points}`,
      "print(100 * theory.misclassification(right, wrong, own, noise, points))",
      `draws = np.array([stream(0, "clients", i).normal(3 * points) for i in range(${CLIENTS})])`,
      `draws = draws.reshape(${CLIENTS}, points, 3)`,
      "x, y = draws[..., :2], noise * draws[..., 2]",
      "losses = [((y - x @ theta) ** 2).sum(1) for theta in (right, wrong)]",
      "print(100 * float((losses[1] <= losses[0]).mean()))",
      "print(100 * theory.misclassification(own, other, own, noise, points))",
      "a, b = own - right, own - wrong",
      "spread = np.sqrt((a + b) @ (a + b) + 4 * noise**2)",
      "print((a @ a - b @ b) / (np.linalg.norm(a - b) * spread))",
      "print(np.linalg.norm(a), np.linalg.norm(b))",
      "",
    ].join("\n"),
  task(_, found, __, memory) {
    const low = found.chance <= found.at_truths + 1e-9;
    const chances = `${digits(100 * found.chance, 2)} % against ${digits(100 * found.at_truths, 2)} % at the truths`;
    if (low && found.apart <= NEAR + 1e-9)
      return [`Solved: ${digits(found.apart)} apart, and a chance of ${chances}.`, true];
    if (low) memory.least = Math.min(memory.least ?? Infinity, found.apart);
    const best =
      memory.least === undefined ? "" : ` Nearest so far: ${digits(memory.least)} apart.`;
    return [
      low
        ? `Low enough: ${chances}. Now ${digits(found.apart)} apart: nearer.${best}`
        : `The chance is too high: ${chances}.${best}`,
      false,
    ];
  },
  build(lab) {
    const map = make_square(EDGE, map_drawer());
    const cloud = make_square(WIDE, cloud_drawn);
    return {
      main: [map.node],
      side: [...["noise", "points", "moved"].map((entry) => lab.control(entry)), cloud.node],
      key:
        "First picture: stars, the client's own truth (with the circle) and the other one; crosses 0 and 1, the " +
        "right and the wrong model, and how far they are from the own truth. Lines and grey: the chance " +
        "(5.3), if the model that the map is of stood there; the thick line is one half. Second picture: sum " +
        "against difference of the residuals of both models, in standard deviations; small: points of " +
        "many clients, large: all points of one. Points in the grey quarters speak for the wrong model; " +
        "the slope of the line is κ. Drag the crosses, or move them with the arrow keys (Shift: far).",
      show({ state, found }) {
        map.show(
          { state, found },
          state.models.map((at, j) => ({
            key: `${j}`,
            name: ["right model", "wrong model"][j],
            at,
            draw: (x, y) => cross_mark(j, x, y, 10),
            moved: (place, begins) =>
              lab.change({ models: state.models.map((one, i) => (i === j ? place : one)) }, begins),
          })),
        );
        cloud.show({ found }, []);
      },
    };
  },
});
