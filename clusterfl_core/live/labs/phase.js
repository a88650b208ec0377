// Phase diagram: which of five methods is the best, over points a client and distance of the groups.

import { range, stream } from "../engine/random.js";
import { make_chart } from "../parts/chart.js";
import { digits, listed, svg } from "../parts/dom.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, ink_on } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const [CLIENTS, UNKNOWNS, STARTS, STEP] = [24, 5, 5, 0.1];
const POINTS = range(8).map((c) => Math.round(10 * 2 ** (c / 2)));
const DISTANCES = range(8).map((r) => Math.round(25 * 2 ** (r / 2)) / 100);
const METHODS = [
  { name: "LocalOnly", letter: "L" },
  { name: "FedAvg", letter: "A" },
  { name: "FedAvg, own steps", letter: "+" },
  { name: "OneShot", letter: "O" },
  { name: "IFCA", letter: "I" },
];
const KINDS_OF_METHOD = [[0], [1], [2], [3, 4]]; // the last: those that group
const TURN_OF_WORK = 8; // milliseconds
const LEVEL = 1.05; // times the least error: as good
const GOAL = { cells: 5, draws: 10 };
const [EDGE, SHIFT] = [4.7, 0.5]; // of the picture; of the map, to make room for its axes
const SEEN =
  "A cell is a kind of clients; its letter is the method of least error (L LocalOnly, A FedAvg, + FedAvg and own " +
  "steps after it, O OneShot, I IFCA), with a second letter where another comes within 5 %. On the dashed line the bias of one model equals the " +
  "variance of a client alone. Drag the ring, or press a cell. Simplified: lines with five unknowns, exact averages instead of rounds; OneShot and IFCA " +
  "begin five times with the models of k clients and take the try that fits best. Step adds a draw of all clients.";

// ------------------------------------------------------------ five by five

const zeros = (count) => new Float64Array(count);

// The solution of gram x = side, by Cholesky's factors.
function solved(gram, side) {
  const d = UNKNOWNS;
  const l = zeros(d * d);
  const x = Float64Array.from(side);
  for (let i = 0; i < d; i++) {
    for (let j = 0; j <= i; j++) {
      let rest = gram[i * d + j];
      for (let a = 0; a < j; a++) rest -= l[i * d + a] * l[j * d + a];
      l[i * d + j] = i === j ? Math.sqrt(rest) : rest / l[j * d + j];
    }
    for (let a = 0; a < i; a++) x[i] -= l[i * d + a] * x[a];
    x[i] /= l[i * d + i];
  }
  for (let i = d - 1; i >= 0; i--) {
    for (let a = i + 1; a < d; a++) x[i] -= l[a * d + i] * x[a];
    x[i] /= l[i * d + i];
  }
  return x;
}

function straight_far(one, other) {
  let sum = 0;
  for (let a = 0; a < UNKNOWNS; a++) sum += (one[a] - other[a]) ** 2;
  return sum;
}

function product(gram, v, into) {
  for (let a = 0; a < UNKNOWNS; a++) {
    let sum = 0;
    for (let b = 0; b < UNKNOWNS; b++) sum += gram[a * UNKNOWNS + b] * v[b];
    into[a] = sum;
  }
  return into;
}

// ------------------------------------------------------------ what chance decides

const dealt = new Map();

// A draw: of each column and client the inputs' Gram matrix and what the noise does to a model alone.
async function deal(draw, breathe) {
  if (dealt.has(draw)) return dealt.get(draw);
  const clients = [];
  for (let i = 0; i < CLIENTS; i++) {
    clients.push(deal_to(draw, i));
    await breathe();
  }
  const source = stream(draw, "own");
  const own = clients.map(() => Float64Array.from({ length: UNKNOWNS }, () => source.normal()));
  const orders = range(STARTS).map((s) => stream(draw, "starts", s).shuffle(range(CLIENTS)));
  dealt.set(draw, { clients, own, orders });
  return dealt.get(draw);
}

function deal_to(draw, i) {
  const d = UNKNOWNS;
  const source = stream(draw, "points", i);
  const [gram, side, point] = [zeros(d * d), zeros(d), zeros(d)];
  let held = 0;
  return POINTS.map((points) => {
    for (; held < points; held++) {
      for (let a = 0; a < d; a++) point[a] = source.normal();
      const noise = source.normal();
      for (let a = 0; a < d; a++) {
        side[a] += point[a] * noise;
        for (let b = 0; b < d; b++) gram[a * d + b] += point[a] * point[b];
      }
    }
    return { gram: gram.slice(), slip: solved(gram, side) };
  });
}

// ------------------------------------------------------------ five methods

function errors_in(
  column,
  row,
  { noise, spread, groups, models, steps },
  { clients, own, orders },
) {
  const d = UNKNOWNS;
  const corner = DISTANCES[row] / Math.SQRT2;
  const truth = own.map((way, i) =>
    way.map((value, a) => (spread / Math.sqrt(d)) * value + (a === i % groups ? corner : 0)),
  );
  const grams = clients.map((one) => one[column].gram);
  const alone = clients.map(({ [column]: { slip } }, i) =>
    slip.map((value, a) => truth[i][a] + noise * value),
  );
  const sides = grams.map((gram, i) => product(gram, alone[i], zeros(d)));

  // fits(choice, j): a model from the clients that choose j, null if nobody does.
  function pooled(choice, j) {
    const [gram, side] = [zeros(d * d), zeros(d)];
    let members = 0;
    for (let i = 0; i < CLIENTS; i++) {
      if (choice[i] !== j) continue;
      members += 1;
      for (let a = 0; a < d * d; a++) gram[a] += grams[i][a];
      for (let a = 0; a < d; a++) side[a] += sides[i][a];
    }
    return members ? solved(gram, side) : null;
  }
  function mean_of(choice, j) {
    const mean = zeros(d);
    let members = 0;
    for (let i = 0; i < CLIENTS; i++) {
      if (choice[i] !== j) continue;
      members += 1;
      for (let a = 0; a < d; a++) mean[a] += alone[i][a];
    }
    return members ? mean.map((sum) => sum / members) : null;
  }
  const [gap, pull] = [zeros(d), zeros(d)];
  function loss_far(w, i) {
    for (let a = 0; a < d; a++) gap[a] = alone[i][a] - w[a];
    product(grams[i], gap, pull);
    let sum = 0;
    for (let a = 0; a < d; a++) sum += gap[a] * pull[a];
    return sum;
  }

  // Choose and fit in turn until nobody changes, from five starts; then the best groups' models.
  function grouped(far, fit) {
    let best = { sum: Infinity };
    for (const order of orders) {
      const centers = order.slice(0, models).map((i) => alone[i]);
      const choice = new Int8Array(CLIENTS).fill(-1);
      let sum = 0;
      for (let turn = 0; turn < 50; turn++) {
        let moved = false;
        sum = 0;
        for (let i = 0; i < CLIENTS; i++) {
          let least = Infinity;
          let nearest = 0;
          for (let j = 0; j < models; j++) {
            const apart = far(centers[j], i);
            if (apart < least) {
              least = apart;
              nearest = j;
            }
          }
          sum += least;
          moved ||= choice[i] !== nearest;
          choice[i] = nearest;
        }
        if (!moved) break;
        for (let j = 0; j < models; j++) centers[j] = fit(choice, j) ?? centers[j];
      }
      if (sum < best.sum) best = { sum, choice };
    }
    const fitted = range(models).map((j) => pooled(best.choice, j));
    return Array.from(best.choice, (j) => fitted[j]);
  }

  const one = pooled(new Int8Array(CLIENTS), 0);
  const tuned = grams.map((gram, i) => {
    const w = one.slice();
    for (let step = 0; step < steps; step++) {
      for (let a = 0; a < d; a++) gap[a] = w[a] - alone[i][a];
      product(gram, gap, pull);
      for (let a = 0; a < d; a++) w[a] -= (STEP / POINTS[column]) * pull[a];
    }
    return w;
  });
  const ends = [
    alone,
    alone.map(() => one),
    tuned,
    grouped((w, i) => straight_far(w, alone[i]), mean_of),
    grouped(loss_far, pooled),
  ];
  return ends.map(
    (held) => held.reduce((sum, w, i) => sum + straight_far(w, truth[i]), 0) / CLIENTS,
  );
}

// ------------------------------------------------------------ the map

const cells = range(POINTS.length * DISTANCES.length).map((c) => [c % 8, Math.floor(c / 8)]);
const bias_of = (distance, { groups, spread }) =>
  (1 - 1 / groups) * (distance ** 2 / 2) + spread ** 2 * (1 - 1 / CLIENTS);
const variance_of = (points, { noise }) => (UNKNOWNS * noise ** 2) / (points - UNKNOWNS - 1);

// Lets the page breathe after some milliseconds of work.
function breather() {
  let end = performance.now() + TURN_OF_WORK;
  return async () => {
    if (performance.now() < end) return;
    await new Promise((go_on) => setTimeout(go_on));
    end = performance.now() + TURN_OF_WORK;
  };
}

// The frame with one more draw. Frames are kept while only the place that is looked at changes.
let kept = { key: "", frames: [] };
function one_more(state, frame) {
  const { noise, spread, groups, models, steps } = state;
  const key = JSON.stringify([noise, spread, groups, models, steps]);
  if (kept.key !== key) kept = { key, frames: [] };
  const { frames } = kept;
  return frames[frame.draws] ?? computed(state, frame, frames);
}

async function computed(state, { draws, sums }, frames) {
  const breathe = breather();
  const drawn = await deal(draws + 1, breathe);
  const more = [];
  for (const [column, row] of cells) {
    const before = sums[more.length];
    more.push(errors_in(column, row, state, drawn).map((error, m) => error + before[m]));
    await breathe();
  }
  frames[draws] = { draws: draws + 1, sums: more };
  return frames[draws];
}

// Means over the draws so far: errors[cell][method], and who is best, then as good.
function mapped(state, path) {
  const { sums, draws } = path.at(-1);
  const errors = sums.map((five) => [...five].map((sum) => (draws ? sum / draws : null)));
  const good = errors.map((five) => {
    if (!draws) return [];
    const order = range(METHODS.length).sort((m, other) => five[m] - five[other]);
    return order.filter((m) => five[m] <= LEVEL * five[order[0]]);
  });
  const owned = KINDS_OF_METHOD.map(
    (kind) => good.filter((order) => draws && kind.includes(order[0])).length,
  );
  const here = state.row * 8 + state.column;
  return { errors, good, owned, draws, here };
}

function drawn_map({ size, at, line }, { state, found }) {
  const side = size / (2 * EDGE);
  const middle = (column, row) => at([column - 3.5 + SHIFT, row - 3.5 + SHIFT]);
  const text = (x, y, words, more = {}) =>
    svg("text", { x, y, "text-anchor": "middle", ...more }, words);
  const colour_in = (c) => (found.good[c].length ? colour_of(found.good[c][0]) : "none");
  const field = cells.map(([column, row], c) => {
    const [x, y] = middle(column, row);
    return svg("rect", {
      click: () => found.press(column, row),
      style: "cursor: pointer",
      x: x - side / 2,
      y: y - side / 2,
      width: side,
      height: side,
      fill: colour_in(c),
      "fill-opacity": 0.85,
      stroke: "var(--faint)",
    });
  });
  // Over the dashed line, which a rim of the cell's colour keeps off them.
  const names = cells.map(([column, row], c) => {
    const [x, y] = middle(column, row);
    const [best, second] = found.good[c];
    if (best === undefined) return svg("g");
    const colour = colour_in(c);
    const rim = `color-mix(in srgb, ${colour} 85%, var(--cfl-under, Canvas))`;
    return text(x, y + 5, found.good[c].slice(0, 2).map((m) => METHODS[m].letter).join(""), {
      class: "number",
      style:
        `fill:${ink_on(colour)};font-size:14px;paint-order:stroke;stroke:${rim};stroke-width:6px;` +
        "stroke-linejoin:round;pointer-events:none",
      "font-style": second === undefined ? "normal" : "italic",
    });
  });
  // In columns of the map: points = 10 * 2^(column / 2).
  const border = range(71)
    .map((s) => -0.5 + s / 10 + 0.5)
    .map((column) => {
      const variance = variance_of(10 * 2 ** (column / 2), state);
      const bias = (variance - bias_of(0, state)) / bias_of(1, { ...state, spread: 0 });
      return [column, 2 * Math.log2(Math.sqrt(bias) / 0.25)];
    })
    .filter(([, row]) => row > -0.5 && row < 7.5)
    .map(([column, row]) => [column - 3.5 + SHIFT, row - 3.5 + SHIFT]);
  const marks = [
    ...field,
    ...["var(--cfl-under, Canvas)", "currentColor"].map((colour, over) =>
      svg("polyline", {
        points: line(border),
        fill: "none",
        stroke: colour,
        "stroke-width": over ? 2 : 5,
        "stroke-opacity": over ? 1 : 0.7,
        "stroke-dasharray": over ? "7 4" : "none",
        "pointer-events": "none",
      }),
    ),
    ...names,
    ...POINTS.map((points, column) => {
      const [x, y] = middle(column, 0);
      return text(x, y + side / 2 + 14, `${points}`);
    }),
    ...DISTANCES.map((distance, row) => {
      const [x, y] = middle(0, row);
      return text(x - side / 2 - 4, y + 4, digits(distance), { "text-anchor": "end" });
    }),
    text(size / 2 + side / 2, size - 3, "points a client"),
    text(9, size / 2, "distance", { transform: `rotate(-90 9 ${size / 2})` }),
  ];
  const label = found.draws
    ? `Map of the best method. Cells: ${listed(METHODS.map(({ name }, m) => `${name} ${found.good.filter((o) => o[0] === m).length}`))}.`
    : "Map without a draw.";
  return { label, marks };
}

laboratory("phase", {
  title: "phase diagram",
  compute: mapped,
  first: () => ({ draws: 0, sums: cells.map(() => zeros(METHODS.length)) }),
  next: (state, frame) => one_more(state, frame),
  rest: (state) => state.rounds >= TABLE.rounds.high,
  rewinds: false, // to an empty map
  waiting: ({ rounds }, path) =>
    path.length === 1 || path.length < rounds
      ? `A new map: ${path.length - 1} of ${rounds} draws. It is judged when it is drawn.`
      : null,
  told({ column, row }, { good, draws, here }) {
    const where = `${POINTS[column]} points a client, groups ${digits(DISTANCES[row])} apart`;
    if (!draws) return `${where}. No draw yet.`;
    const [best, ...others] = good[here].map((m) => METHODS[m].name);
    const level = others.length ? `, ${listed(others)} as good within 5 %` : "";
    return `${where}: ${best} is best${level}. ${draws} draws.`;
  },
  readings: (state, { errors, here }) => [
    ...METHODS.map(({ name }, m) => [`error of ${name}`, errors[here][m], 4]),
    ["bias² of one model", bias_of(DISTANCES[state.row], state), 4],
    ["variance of a client alone", variance_of(POINTS[state.column], state), 4],
  ],
  python: ({ noise, spread, groups, models, steps, column, row, rounds }) =>
    [
      "from clusterfl_core.live.labs.phase import errors",
      "",
      `points, distance, noise, spread, groups = ${POINTS[column]}, ${DISTANCES[row]}, ${noise}, ${spread}, ${groups}`,
      `settings = {"noise": noise, "spread": spread, "groups": groups, "models": ${models}}`,
      `found = errors(points, distance, **settings, steps=${steps}, draws=${rounds})`,
      `bias = (1 - 1 / groups) * distance**2 / 2 + spread**2 * (1 - 1 / ${CLIENTS})`,
      `variance = ${UNKNOWNS} * noise**2 / (points - ${UNKNOWNS + 1})`,
      "print(*found.values(), bias, variance)",
      "",
    ].join("\n"),
  task(_, { owned, draws }) {
    const seen =
      `Cells: LocalOnly ${owned[0]}, FedAvg ${owned[1]}, own steps ${owned[2]}, ` +
      `OneShot or IFCA ${owned[3]}`;
    if (draws < GOAL.draws) return [`${seen}. Let it draw at least ${GOAL.draws} times.`, false];
    if (owned.every((count) => count >= GOAL.cells)) return [`Solved: ${seen}.`, true];
    const short = owned.filter((count) => count < GOAL.cells).length;
    return [`${seen}. Each needs ${GOAL.cells}: ${short} of the four ${short > 1 ? "have" : "has"} too few.`, false];
  },
  build(lab) {
    const square = make_square(EDGE, drawn_map);
    const press = (column, row, begins = true) => {
      const within = (value) => Math.max(0, Math.min(7, value));
      const [c, r] = [within(column), within(row)];
      if (c === lab.keeping.state.column && r === lab.keeping.state.row) return false;
      lab.change({ column: c, row: r }, begins);
      return true;
    };
    const chart = make_chart({
      tall: 210,
      caption: "Error against points a client, at this distance",
      x: {
        low: 10,
        high: 113,
        log: true,
        ticks: POINTS.filter((_, c) => c % 2 === 0).map((points) => [points, `${points}`]),
        words: "points a client",
      },
      y: { log: true, ticks: range(7).map((e) => [10 ** (e - 4), `${10 ** (e - 4)}`]) },
    });
    const show_chart = ({ errors, draws }, { row, column }) => {
      const rows = POINTS.map((_, c) => errors[row * 8 + c]);
      const shown = draws ? rows.flat() : [0.01, 1];
      const lines = METHODS.map(({ letter }, m) => ({
        points: draws ? rows.map((five, c) => [POINTS[c], five[m]]) : [],
        name: letter,
        colour: colour_of(m),
        wide: 2,
        dash: ["none", "none", "6 3", "none", "2 3"][m],
        back: m,
      }));
      const ends = [Math.min(...shown), Math.max(...shown)].map((e) => [POINTS[column], e]);
      const errors_here = draws
        ? METHODS.map(({ name }, m) => `${name} ${digits(rows[column][m], 3)}`)
        : [];
      chart.show(
        `Errors at ${POINTS[column]} points: ${listed(errors_here)}.`,
        [{ points: ends, dash: "2 3" }, ...lines],
        {
          low: 0.8 * Math.min(...shown),
          high: 1.3 * Math.max(...shown),
        },
      );
    };
    return {
      main: [square.node],
      side: [
        ...["noise", "spread", "groups", "models", "steps"].map((entry) => lab.control(entry)),
        chart.node,
      ],
      key: SEEN,
      show({ state, found }) {
        const { column, row } = state;
        const best = found.good[found.here][0];
        square.show({ state, found: { ...found, press } }, [
          {
            key: "cell",
            name: "cell that is looked at",
            at: [column - 3.5 + SHIFT, row - 3.5 + SHIFT],
            draw: (x, y) =>
              svg(
                "g",
                { fill: "none" },
                svg("circle", { cx: x, cy: y, r: 15, stroke: "#fff", "stroke-width": 5 }),
                svg("circle", { cx: x, cy: y, r: 15, stroke: "#000", "stroke-width": 2.5 }),
              ),
            moved: ([x, y], begins) =>
              press(Math.round(x + 3.5 - SHIFT), Math.round(y + 3.5 - SHIFT), begins),
            pressed: ([right, up]) => press(column + right, row + up),
            range: [0, 63, found.here],
            said:
              `${POINTS[column]} points, distance ${digits(DISTANCES[row])}` +
              (best === undefined ? "" : `, ${METHODS[best].name} is best`),
          },
        ]);
        show_chart(found, state);
      },
    };
  },
});
