// Race on your machine: plain descent against the Gram form, one client after another or at once.

import { range } from "../engine/random.js";
import { make_chart } from "../parts/chart.js";
import { digits, html, listed, svg } from "../parts/dom.js";
import { laboratory } from "../parts/laboratory.js";
import { make_worker, serve } from "../parts/worker.js";

const [CLASSES, STEP_SIZE] = [10, 0.1];
const [LONG, TURNS, MOST_ROUNDS] = [0.05, 3, 400]; // seconds of a measurement; turns of all lanes
const SLOW = 0.3; // seconds: a round that takes so long is measured once
const GOAL = 2; // times as fast, or as slow
const SEEN =
  "Step races once, Play five times; the best counts, for other programs only ever add time. Each " +
  `race times every lane in turn, three times, once where a round takes over ${SLOW} seconds. A ` +
  "round is all clients with all their local steps, in double precision. The first two lanes are " +
  "one worker each, a program beside the page. The third deals the clients to several, and takes " +
  "the form that needs fewer multiplications. Dots: your races on this page; the ring is the last.";

// ---------------------------------------------------------------- clients without meaning

// A byte from a number: the same in Python.
function byte(number) {
  let t = Math.imul(number ^ (number >>> 16), 0x21f0aaad);
  t = Math.imul(t ^ (t >>> 15), 0x735a2d97);
  return ((t ^ (t >>> 15)) >>> 0) & 255;
}

function dealt_client(i, { images: n, inputs: d }) {
  const x = Float64Array.from({ length: n * d }, (_, at) => byte(i * n * d + at) / 255);
  const y = Int32Array.from({ length: n }, (_, at) => byte(1e9 + i * n + at) % CLASSES);
  return { x, y };
}

function first_network({ inputs: d, hidden: h }) {
  const numbers = (count, from) =>
    Float64Array.from({ length: count }, (_, at) => (byte(from + at) / 255 - 0.5) / 5);
  return {
    W: numbers(h * d, 2e9),
    b: numbers(h, 21e8),
    V: numbers(CLASSES * h, 22e8),
    v: numbers(CLASSES, 23e8),
  };
}

// ---------------------------------------------------------------- (A.1) to (A.6)

const copied = ({ W, b, V, v }) => ({ W: W.slice(), b: b.slice(), V: V.slice(), v: v.slice() });

// Z = X W' + 1 b'
function first_layer(x, { W, b }, n, d, h, Z) {
  for (let l = 0; l < n; l++) {
    for (let j = 0; j < h; j++) {
      let sum = b[j];
      for (let a = 0; a < d; a++) sum += x[l * d + a] * W[j * d + a];
      Z[l * h + j] = sum;
    }
  }
}

// The output layer at Z: its errors E and the slopes D at the hidden units, then its own step.
// → the loss before it
function output_layer(Z, { V, v }, y, n, h, E, D, step = STEP_SIZE) {
  let loss = 0;
  for (let l = 0; l < n; l++) {
    let most = -Infinity;
    for (let q = 0; q < CLASSES; q++) {
      let sum = v[q];
      for (let j = 0; j < h; j++) sum += Math.max(0, Z[l * h + j]) * V[q * h + j];
      E[l * CLASSES + q] = sum;
      most = Math.max(most, sum);
    }
    let whole = 0;
    for (let q = 0; q < CLASSES; q++) whole += Math.exp(E[l * CLASSES + q] - most);
    loss += Math.log(whole) + most - E[l * CLASSES + y[l]];
    for (let q = 0; q < CLASSES; q++) {
      const guessed = Math.exp(E[l * CLASSES + q] - most) / whole;
      E[l * CLASSES + q] = (guessed - Number(q === y[l])) / n;
    }
    for (let j = 0; j < h; j++) {
      let sum = 0;
      for (let q = 0; q < CLASSES; q++) sum += E[l * CLASSES + q] * V[q * h + j];
      D[l * h + j] = Z[l * h + j] > 0 ? sum : 0;
    }
  }
  for (let q = 0; q < CLASSES; q++) {
    for (let l = 0; l < n; l++) {
      const move = step * E[l * CLASSES + q];
      for (let j = 0; j < h; j++) V[q * h + j] -= move * Math.max(0, Z[l * h + j]);
      v[q] -= move;
    }
  }
  return loss / n;
}

// W <- W - step D' X, b <- b - step D' 1
function move_first({ W, b }, D, x, n, d, h) {
  for (let j = 0; j < h; j++) {
    for (let l = 0; l < n; l++) {
      const move = STEP_SIZE * D[l * h + j];
      for (let a = 0; a < d; a++) W[j * d + a] -= move * x[l * d + a];
      b[j] -= move;
    }
  }
}

function trained_plain({ x, y }, first, { images: n, inputs: d, hidden: h, steps }) {
  const own = copied(first);
  const [Z, D, E] = [n * h, n * h, n * CLASSES].map((size) => new Float64Array(size));
  for (let step = 0; step < steps; step++) {
    first_layer(x, own, n, d, h, Z);
    output_layer(Z, own, y, n, h, E, D);
    move_first(own, D, x, n, d, h);
  }
  return own;
}

function trained_gram({ x, y }, first, { images: n, inputs: d, hidden: h, steps }) {
  const own = copied(first);
  const [Z, D, total, E, G] = [n * h, n * h, n * h, n * CLASSES, n * n].map(
    (size) => new Float64Array(size),
  );
  for (let l = 0; l < n; l++) {
    for (let o = 0; o < n; o++) {
      let sum = 1;
      for (let a = 0; a < d; a++) sum += x[l * d + a] * x[o * d + a];
      G[l * n + o] = sum;
    }
  }
  first_layer(x, own, n, d, h, Z);
  for (let step = 0; step < steps; step++) {
    output_layer(Z, own, y, n, h, E, D);
    for (let at = 0; at < n * h; at++) total[at] += D[at];
    if (step === steps - 1) break;
    for (let l = 0; l < n; l++) {
      for (let o = 0; o < n; o++) {
        const move = STEP_SIZE * G[l * n + o];
        for (let j = 0; j < h; j++) Z[l * h + j] -= move * D[o * h + j];
      }
    }
  }
  move_first(own, total, x, n, d, h);
  return own;
}

const FORMS = { plain: trained_plain, gram: trained_gram };

// ---------------------------------------------------------------- in the worker

let held = { name: "", clients: new Map() };

// Rounds of the clients from one to another; where asked, the sum of their losses after the round.
function race_answer({ form, state, from, to, rounds, scored }) {
  const { images: n, inputs: d, hidden: h } = state;
  const name = `${n} ${d}`;
  if (held.name !== name) held = { name, clients: new Map() };
  const first = first_network(state);
  let loss = 0;
  let kept = 0;
  for (let round = 0; round < rounds; round++) {
    for (let i = from; i < to; i++) {
      if (!held.clients.has(i)) held.clients.set(i, dealt_client(i, state));
      const client = held.clients.get(i);
      const own = FORMS[form](client, first, state);
      kept += own.W[0]; // so that no work is left out as useless
      if (!scored) continue;
      const [Z, D, E] = [n * h, n * h, n * CLASSES].map((size) => new Float64Array(size));
      first_layer(client.x, own, n, d, h, Z);
      loss += output_layer(Z, own, client.y, n, h, E, D, 0);
    }
  }
  return { loss, kept };
}

serve(race_answer);

// ---------------------------------------------------------------- in the page

const pool = [];

async function asked_of(count, question) {
  while (pool.length < count) pool.push(make_worker(race_answer));
  const { clients } = question.state;
  const ends = range(count + 1).map((s) => Math.floor((s * clients) / count));
  const shares = range(count).filter((s) => ends[s] < ends[s + 1]);
  const begin = performance.now();
  const found = await Promise.all(
    shares.map((s) => pool[s].ask({ ...question, from: ends[s], to: ends[s + 1] })),
  );
  const seconds = (performance.now() - begin) / 1000;
  return { seconds, loss: found.reduce((sum, { loss }) => sum + loss, 0) / clients };
}

// Rounds a second in each lane, the best of some turns. What comes before is not counted: there the
// browser still translates the loops, and deals the images. warm: seconds of a round that a lane
// has played already, if it has.
async function paced(lanes, state, warm) {
  const asked = ([count, form], rounds) =>
    asked_of(count, { form, state, rounds, scored: false });
  const plans = [];
  for (const [at, lane] of lanes.entries()) {
    if (warm[at] > SLOW) {
      plans.push({ rounds: 1, turns: 1 });
      continue;
    }
    const first = await asked(lane, 1);
    const { seconds } = first.seconds > SLOW ? first : await asked(lane, 1);
    const rounds = Math.min(MOST_ROUNDS, Math.ceil(LONG / Math.max(seconds, 1e-4)));
    plans.push({ rounds, turns: seconds > SLOW ? 1 : TURNS });
  }
  const best = lanes.map(() => 0);
  for (let turn = 0; turn < TURNS; turn++) {
    for (const [at, lane] of lanes.entries()) {
      const { rounds, turns } = plans[at];
      if (turn >= turns) continue;
      tell(`${LANES[at]} is timed`);
      const { seconds } = await asked(lane, rounds);
      best[at] = Math.max(best[at], rounds / seconds);
    }
  }
  return best;
}

// (A.3), (A.7) and (A.8)
function counted_work({ clients, images: n, inputs: d, hidden: h, steps }) {
  const outputs = 3 * steps * n * h * CLASSES;
  const plain = clients * (steps * 2 * n * d * h + outputs);
  const gram = clients * (n * n * d + (steps - 1) * n * n * h + 2 * n * d * h + outputs);
  const limit = (2 * d * (steps - 1) * h) / (d + (steps - 1) * h);
  return { plain, gram, ratio: plain / gram, limit };
}

const whole_name = ({ rounds, ...settings }) => JSON.stringify(settings);
const sized = (given) => ({ ...given, inputs: Number(given.inputs) });
const raced = new Map(); // of each setting: the frames so far
const LANES = ["the first lane", "the second lane", "the third lane"];
let tell = () => {}; // where a race is, in words

// A race that nobody waits for any more ends with its workers: else it would run on beside the next
// one, and both would be timed wrongly.
let running = false;
function leave_race() {
  if (running) pool.splice(0).forEach((worker) => worker.stop());
  running = false;
}

async function one_race(given, frame) {
  const name = whole_name(given);
  const frames = raced.get(name) ?? [];
  if (frames[frame.tries]) return frames[frame.tries];
  const state = sized(given);
  const { ratio } = counted_work(state);
  running = true;
  const checked = [];
  for (const form of ["plain", "gram"])
    checked.push(await asked_of(1, { form, state, rounds: 1, scored: true }));
  const [{ loss }, other] = checked;
  if (!(Math.abs(loss - other.loss) < 1e-9)) throw new Error("The two forms do not agree");
  const lanes = [
    [1, "plain"],
    [1, "gram"],
    [state.workers, ratio > 1 ? "gram" : "plain"],
  ];
  const paces = await paced(lanes, state, checked.map(({ seconds }) => seconds));
  const best = paces.map((pace, lane) => Math.max(pace, frame.paces?.[lane] ?? 0));
  running = false;
  frames[frame.tries] = { tries: frame.tries + 1, paces: best, loss };
  raced.delete(name); // so that the newest is the last
  raced.set(name, frames);
  return frames[frame.tries];
}

function compared(given, path) {
  const { paces = null, loss = null, tries } = path.at(-1);
  const measured = paces ? paces[1] / paces[0] : null;
  return { ...counted_work(sized(given)), paces, loss, tries, measured };
}

const many = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
const million = (count) => `${digits(count / 1e6, 2)} million`;
const a_second = (pace) => digits(pace, pace < 9.95 ? 2 : 0);
const SLIDERS = ["images", "inputs", "hidden", "steps"];
const moved = (one, other) => SLIDERS.filter((entry) => one[entry] !== other[entry]);

laboratory("race", {
  title: "race on your machine",
  compute: compared,
  first() {
    leave_race();
    return { tries: 0 };
  },
  next: one_race,
  rest: ({ rounds }) => rounds >= TABLE.rounds.high,
  rewinds: false, // what was measured is kept
  waiting: () => "Racing …",
  changes: Object.fromEntries(
    [...SLIDERS, "clients", "workers"].map((entry) => [entry, () => ({ rounds: 0 })]),
  ),
  told({ clients, images, steps, rounds }, { plain, gram, limit }, path) {
    if (path.length <= rounds) return "Racing …";
    return (
      `${many(clients, "client")} with ${images} images, ${many(steps, "local step")}: plain descent ` +
      `needs ${million(plain)} multiplications a round, the Gram form ${million(gram)}. ` +
      `By (A.8) it pays ${limit < 1 ? "for no number of" : `below ${digits(limit, 0)}`} images.`
    );
  },
  readings: (_, { plain, gram, ratio, limit, loss }) => [
    ["plain, million multiplications", plain / 1e6, 3],
    ["Gram, million multiplications", gram / 1e6, 3],
    ["counted: plain / Gram", ratio, 2],
    ["images below which Gram pays", limit, 1],
    ["loss after the round", loss, 6],
  ],
  python: ({ clients, images, inputs, hidden, steps }, { loss }) =>
    [
      "import clusterfl_core as cf",
      "from clusterfl_core.live.labs.race import counted, loss_after",
      "",
      `sizes = {"images": ${images}, "inputs": ${inputs}, "hidden": ${hidden}, "steps": ${steps}}`,
      `plain, gram, limit = counted(${clients}, **sizes)`,
      `pays = cf.compute.gram_pays(cf.models.MLP(${inputs}, ${hidden}, 10), ${images}, ${steps})`,
      "assert pays == (gram < plain)",
      "print(plain / 1e6, gram / 1e6, plain / gram, limit)",
      ...(loss === null ? [] : [`print(loss_after(${clients}, **sizes))`]),
      "",
    ].join("\n"),
  task(state, { measured, ratio }, _, memory) {
    memory.won ??= [];
    const part = memory.won.length ? "won" : null;
    const times = (value) =>
      value >= 1 ? `${digits(value)} times as fast` : `${digits(1 / value)} times as slow`;
    // Of the settings with which it won, those that are nearest to the present ones.
    const near = memory.won.reduce(
      (best, won) => (best && moved(best, state).length <= moved(won, state).length ? best : won),
      null,
    );
    const since = near ? moved(near, state) : [];
    const sliders = since.length
      ? `${listed(since.map((entry) => TABLE[entry].words))} moved since it won` +
        (since.length > 1 ? ": only one may" : "")
      : "no slider that counts has moved since it won";
    if (measured === null)
      return [
        part
          ? `The Gram form has won; ${sliders}. By the count it is ${times(ratio)} now: race (Step).`
          : `No race yet with these settings; by the count the Gram form is ${times(ratio)}: race (Step).`,
        false,
        part,
      ];
    const now = `On your clock the Gram form is ${times(measured)}`;
    if (measured >= GOAL) memory.won.push({ ...state });
    if (!memory.won.length)
      return [`${now}. First make it ${GOAL} times as fast: choose other sizes.`, false];
    if (measured >= GOAL)
      return [`${now}. It has won by ${GOAL}; now make it lose by ${GOAL}: move one slider.`, false, "won"];
    if (measured > 1 / GOAL)
      return [`${now}; it should lose by ${GOAL}. It has won; ${sliders}.`, false, "won"];
    if (since.length === 1)
      return [`Solved: on${now.slice(2)}, and one slider turned the race.`, true];
    return [`${now}, but ${sliders}.`, false, "won"];
  },
  build(lab) {
    const rows = html("tbody", {});
    const table = html(
      "table",
      {},
      html("caption", {}, "Rounds a second on your machine, measured"),
      rows,
    );
    const powers = {
      low: 1 / 32,
      high: 32,
      log: true,
      ticks: [
        [1 / 16, "1/16"],
        [1 / 4, "¼"],
        [1, "1"],
        [4, "4"],
        [16, "16"],
      ],
    };
    const chart = make_chart({
      tall: 230,
      caption: "Gram against plain: your clock over the count",
      x: { ...powers, words: "times as fast, counted by (A.3) and (A.7)" },
      y: powers,
    });
    const shown_row = (lane, pace, most, words) =>
      html(
        "tr",
        {},
        html("td", { style: "width: 46%" }, words),
        html(
          "td",
          { style: "width: 36%" },
          svg(
            "svg",
            { width: "100%", height: 16, "aria-hidden": "true" },
            svg("rect", {
              x: 1,
              y: 2,
              width: `${pace ? Math.max(1, (97 * pace) / most) : 1}%`,
              height: 12,
              fill: lane === 0 ? "none" : "currentColor",
              "fill-opacity": lane === 2 ? 0.35 : 0.75,
              stroke: "currentColor",
            }),
          ),
        ),
        html("td", { style: "text-align: right" }, pace ? a_second(pace) : "–"),
      );
    let racing = false;
    tell = (words) => {
      table.caption.textContent = `Racing: ${words} …`;
    };
    return {
      main: [table, chart.node],
      side: ["clients", "images", "inputs", "hidden", "steps", "workers"].map((entry) =>
        lab.control(entry),
      ),
      key: SEEN,
      show({ state, found, busy }) {
        const { paces, ratio } = found;
        const words = [
          "plain, one after another",
          "Gram, one after another",
          `${ratio > 1 ? "Gram" : "plain"}, ${many(state.workers, "worker")} at once`,
        ];
        const most = paces ? Math.max(...paces) : 1;
        rows.replaceChildren(
          ...words.map((name, lane) => shown_row(lane, paces?.[lane], most, name)),
        );
        table.caption.textContent = busy
          ? "Racing …"
          : `Rounds a second on your machine (${many(navigator.hardwareConcurrency ?? 1, "core")}), ` +
            `best of ${found.tries} ${found.tries === 1 ? "try" : "tries"}`;
        if (racing && !busy && paces) {
          const said = words.map((name, lane) => `${name}: ${a_second(paces[lane])}`);
          lab.say(`Raced. Rounds a second: ${said.join("; ")}.`, false);
        }
        racing = busy;
        const dots = [...raced].map(([name, frames]) => {
          const best = frames.at(-1).paces;
          return [counted_work(sized(JSON.parse(name))).ratio, best[1] / best[0]];
        });
        const dot = (radius, more) => (x, y) =>
          svg("circle", { cx: x, cy: y, r: radius, class: "edge", fill: "currentColor", ...more });
        chart.show(
          found.measured === null
            ? `Counted ratio ${digits(ratio)}; not measured yet.`
            : `Counted ratio ${digits(ratio)}, measured ${digits(found.measured)}.`,
          [
            { points: [[1 / 32, 1 / 32], [32, 32]], name: "as counted", back: 0, under: true },
            { points: [[1 / 32, 1], [32, 1]], dash: "2 4" },
            { points: [[ratio, 1 / 32], [ratio, 32]], dash: "6 4" },
            ...dots.map((at) => ({ at, draw: dot(3.5) })),
            ...(found.measured === null
              ? []
              : [{ at: [ratio, found.measured], draw: dot(8, { fill: "none" }) }]),
          ],
        );
      },
    };
  },
});
