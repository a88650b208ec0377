// The angle dial: when do two groups of turned digits deserve models of their own?

import { digits_client, unpack_digits } from "../engine/digits.js";
import { FedAvg } from "../engine/fedavg.js";
import { IFCA, lowest } from "../engine/ifca.js";
import { begin, next_round } from "../engine/lab.js";
import { LocalOnly } from "../engine/local_only.js";
import { range } from "../engine/random.js";
import { digits, html, svg, width_of } from "../parts/dom.js";
import { make_identities } from "../parts/identities.js";
import { laboratory } from "../parts/laboratory.js";
import { group_mark } from "../parts/marks.js";
import { make_worker, serve } from "../parts/worker.js";

const [GROUPS, EACH, STEPS, STEP_SIZE] = [2, 6, 5, 0.3];
const BATCH = 5; // test images by which a choice is flattered
const [ENOUGH, NEAR] = [8, 30]; // what the task asks for: rounds, degrees
const SHOWN = 7; // images of each group
const [TALL, EDGE_LEFT, EDGE_RIGHT] = [190, 30, 76];
const CLUSTERS = Array.from({ length: GROUPS * EACH }, (_, i) => Math.floor(i / EACH));
const LINES = [
  ["ifca", "IFCA", "none"],
  ["fedavg", "FedAvg", "7 4"],
  ["alone", "LocalOnly", "2 3"],
];
const SEEN =
  "Above: what clients of each group see. Curves: accuracy on 360 test images turned as a client's " +
  "own, mean over twelve clients. Everything is computed in your browser: scikit-learn's digits, a " +
  `network 64-32-10, ${STEPS} full-batch steps of size ${STEP_SIZE} a round, all clients in all ` +
  "rounds. One start of each method is shown; another start may end otherwise.";

let images = null;
const all_images = () => (images ??= unpack_digits(DIGITS));

const described_methods = ({ angle, points, k, seed }) => {
  const world = { kind: "digits", clusters: GROUPS, clients: EACH, points, angle };
  const local = { steps: STEPS, step_size: STEP_SIZE };
  return {
    ifca: { world, algorithm: { name: IFCA.name, clusters: k, local }, seed },
    fedavg: { world, algorithm: { name: FedAvg.name, local }, seed },
    alone: { world, algorithm: { name: LocalOnly.name, local }, seed },
  };
};

// ---------------------------------------------------------------- in the worker

const mean_of = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;

// Mean over the clients of their model's accuracy on the test images of their group.
function scored({ world, state }) {
  const known_scores = new Map();
  const score = (row, group) => {
    const name = `${row} ${group}`;
    if (!known_scores.has(name))
      known_scores.set(name, world.model.accuracy(state.bank[row], world.test[group]));
    return known_scores.get(name);
  };
  return mean_of(state.assignments.map((row, i) => score(row, world.clusters[i])));
}

// The accuracy if the model is chosen by the labels of the very images that then score it.
function flattered({ world, state }) {
  const { model, test } = world;
  return mean_of(
    test.flatMap((client) => {
      const losses = state.bank.map((theta) => model.point_losses(theta, client));
      return Array.from({ length: client.n / BATCH }, (_, batch) => {
        const [from, to] = [batch * BATCH, (batch + 1) * BATCH];
        const chosen = lowest(losses.map((row) => mean_of([...row.subarray(from, to)])));
        const some = {
          n: BATCH,
          x: client.x.subarray(from * model.inputs, to * model.inputs),
          y: client.y.subarray(from, to),
        };
        return model.accuracy(state.bank[chosen], some);
      });
    }),
  );
}

let kept = { name: "", runs: {}, frames: [] };

// The round of a state, played as far as needed.
function answer({ state, round }) {
  const methods = described_methods(state);
  const name = JSON.stringify(methods);
  if (kept.name !== name) {
    const begun = Object.entries(methods).map(([key, one]) => [key, begin(one, all_images())]);
    kept = { name, runs: Object.fromEntries(begun), frames: [] };
  }
  const { runs, frames } = kept;
  while (frames.length < round) {
    for (const key of Object.keys(runs)) runs[key] = next_round(methods[key], runs[key]);
    const scores = Object.entries(runs).map(([key, run]) => [key, scored(run)]);
    const { assignments } = runs.ifca.state;
    frames.push({
      round: frames.length + 1,
      ...Object.fromEntries(scores),
      flattered: flattered(runs.ifca),
      assignments: [...assignments],
    });
  }
  return frames[round - 1];
}

serve(answer);

// ---------------------------------------------------------------- in the page

const worker = make_worker(answer);

function python_of({ angle, points, k, seed, rounds }) {
  return [
    "import clusterfl_core as cf",
    "from clusterfl_core.live import replay",
    "",
    `federation = replay.digits(clusters=${GROUPS}, clients=${EACH}, points=${points}, angle=${angle})`,
    `model, local = cf.models.MLP(64, 32, 10), cf.LocalSGD(${STEPS}, ${STEP_SIZE})`,
    "tests = federation.test.take(federation.clusters)  # for each client, those of its group",
    "",
    "",
    "def play(algorithm):",
    `    run = replay.run(algorithm, federation, ${Math.max(1, rounds)}, seed=${seed})`,
    "    own = run.models.take(run.assignments)",
    "    return run, float(cf.compute.accuracies(own, tests).double().mean())",
    "",
    "",
    `ifca, groups = play(cf.IFCA(model, ${k}, local))`,
    "_, together = play(cf.FedAvg(model, local))",
    "_, alone = play(cf.LocalOnly(model, local))",
    "flattered = 0",
    `for group in range(${GROUPS}):  # models chosen by the labels that then score them`,
    "    x, y = federation.test.points(group)",
    `    five = cf.Clients.from_lists(list(x.split(${BATCH})), list(y.split(${BATCH})))`,
    "    chosen = cf.compute.loss_matrix(ifca.models, five).argmin(1)",
    "    right = cf.compute.accuracies(ifca.models.take(chosen), five)",
    `    flattered += float(right.double().mean()) / ${GROUPS}`,
    "print(groups, together, alone, flattered)",
    "",
  ].join("\n");
}

// A row of images for each group.
function make_samples() {
  const node = svg("svg", { role: "img", class: "chart", viewBox: "-12 0 144 34" });
  let shown_angle = null;
  return {
    node,
    show(angle) {
      if (angle === shown_angle) return;
      shown_angle = angle;
      const seen = range(GROUPS).map((group) => {
        const rows = range(SHOWN).map((image) => SHOWN * group + image);
        return digits_client(all_images(), rows, "rotated", angle * group, []);
      });
      node.setAttribute("aria-label", `Digits upright, and turned by ${digits(angle, 0)} degrees.`);
      const squares = seen.flatMap((client, group) =>
        Array.from(client.x, (grey, at) => {
          const [image, pixel] = [Math.floor(at / 64), at % 64];
          const [x, y] = [19 * image + 2 * (pixel % 8), 17.5 * group + 2 * Math.floor(pixel / 8)];
          return grey > 0.06
            ? `<rect x="${x}" y="${y}" width="2.02" height="2.02" opacity="${grey.toFixed(2)}"/>`
            : "";
        }),
      );
      const drawn = svg("g", { fill: "currentColor" });
      drawn.innerHTML = squares.join("");
      const marks = seen.map((_, group) =>
        group_mark(group, -6, 8 + 17.5 * group, 3.5, { fill: "currentColor" }),
      );
      node.replaceChildren(drawn, ...marks);
    },
  };
}

function make_curves() {
  const picture = svg("svg", { role: "img", class: "chart", height: TALL });
  const node = html("figure", {}, html("figcaption", {}, "Accuracy over the rounds"), picture);
  let shown_path = [];
  const wide = width_of(picture, node, 300, () => made.show(shown_path));
  const made = {
    node,
    show(path) {
      shown_path = path;
      const width = Math.max(220, wide());
      const rounds = Math.max(ENOUGH, path.length - 1);
      const x = (round) => EDGE_LEFT + ((width - EDGE_LEFT - EDGE_RIGHT) * round) / rounds;
      const y = (value) => 8 + (TALL - 34) * (1 - value);
      const played_rounds = path.slice(1);
      const last = played_rounds.at(-1);
      const order = last ? [...LINES].sort((one, other) => last[other[0]] - last[one[0]]) : LINES;
      let lowest_label = -Infinity;
      picture.setAttribute("viewBox", `0 0 ${width} ${TALL}`);
      picture.setAttribute(
        "aria-label",
        last
          ? `After round ${last.round}: ${LINES.map(([key, name]) => `${name} ${digits(100 * last[key], 0)} percent`).join(", ")}.`
          : "No round played yet.",
      );
      picture.replaceChildren(
        ...[0, 0.5, 1].flatMap((value) => [
          svg("path", { class: "grid", d: `M${EDGE_LEFT} ${y(value)}H${width - EDGE_RIGHT}` }),
          svg("text", { x: 0, y: y(value) + 4 }, `${value}`),
        ]),
        svg("text", { x: EDGE_LEFT, y: TALL - 6 }, "0"),
        svg("text", { x: x(rounds), y: TALL - 6, "text-anchor": "end" }, `round ${rounds}`),
        ...order.flatMap(([key, name, dashes]) => {
          if (!last) return [];
          const points = played_rounds.map(
            (one) => `${x(one.round).toFixed(1)},${y(one[key]).toFixed(1)}`,
          );
          lowest_label = Math.max(y(last[key]) + 4, lowest_label + 14);
          return [
            svg("polyline", {
              class: "trail",
              stroke: LOOKS.algorithms[name],
              "stroke-dasharray": dashes,
              points: points.join(" "),
            }),
            svg("circle", {
              r: 3,
              cx: x(last.round),
              cy: y(last[key]),
              fill: LOOKS.algorithms[name],
            }),
            svg(
              "text",
              { x: x(last.round) + 8, y: lowest_label },
              name === "LocalOnly" ? "alone" : name,
            ),
          ];
        }),
      );
    },
  };
  return made;
}

laboratory("angle", {
  title: "the angle dial",
  *prepare() {
    yield all_images();
  },
  first: () => null,
  next: (state, before) => worker.ask({ state, round: (before?.round ?? 0) + 1 }),
  rest: ({ rounds }) => rounds === ENOUGH || rounds >= 15, // the task's round, then the last one
  waiting: ({ rounds }, path) =>
    path.length < rounds ? `Playing round ${path.length} of ${rounds} …` : null,
  compute: (_, path) => path.at(-1),
  told({ angle, k, rounds }, found) {
    const now = rounds ? "The rounds are played again." : "Press Play.";
    if (!found) return `Two groups, ${digits(angle, 0)}° apart. ${now}`;
    const used = new Set(found.assignments).size;
    const all = k === 1 ? "the one model" : k === 2 ? "both models" : `all ${k} models`;
    const models = `${used < k ? `${used} of ${k} models` : all} in use`;
    const lead = found.ifca - found.fedavg;
    const better = lead > 0 ? "more than" : lead < 0 ? "less than" : "as much as";
    const by = lead === 0 ? "" : `, by ${digits(Math.abs(100 * lead), 1)} points`;
    return (
      `Round ${found.round}, ${digits(angle, 0)}°: ${models}; IFCA reads ${better} one model for ` +
      `all${by}.`
    );
  },
  readings(_, found) {
    const share = (key) => (found ? found[key] : null);
    return [
      ["IFCA", share("ifca"), 3],
      ["FedAvg", share("fedavg"), 3],
      ["each client alone", share("alone"), 3],
      ["IFCA, choosing on the test", share("flattered"), 3],
    ];
  },
  python: python_of,
  task({ angle, points, k, seed }, _, path, memory) {
    const judged = path[ENOUGH]; // later rounds change no verdict
    const setting = `${points} ${k} ${seed}`;
    const fresh = memory.setting !== undefined && memory.setting !== setting;
    if (memory.setting !== setting) Object.assign(memory, { setting, leads: new Map() });
    if (k < 2) return ["IFCA needs at least two models.", false];
    if (judged) memory.leads.set(angle, judged.ifca - judged.fedavg);
    const leads = [...memory.leads].sort(([one], [other]) => other - one);
    const [won, lost, equal] = [1, -1, 0].map((sign) =>
      leads.filter(([, lead]) => Math.sign(lead) === sign),
    );
    const shown = (some) =>
      some
        .map(([one, lead]) => `${one}°${lead ? ` (by ${digits(100 * Math.abs(lead), 1)} points)` : ""}`)
        .join(", ") || "no angle yet";
    const gaps = won.flatMap(([a]) => lost.map(([b]) => [Math.abs(a - b), a, b]));
    const [near] = gaps.sort(([one], [other]) => one - other);
    if (near && near[0] <= NEAR)
      return [`Solved: groups win at ${near[1]}°, one model at ${near[2]}°.`, true];
    const seen =
      `Groups win at ${shown(won)}; one model wins at ${shown(lost)}` +
      (equal.length ? `; even, which counts for neither, at ${shown(equal)}.` : ".");
    const far = near ? ` The nearest two are ${near[0]}° apart: at most ${NEAR}° are asked.` : "";
    const parts = [won.length && "won", lost.length && "lost"].filter(Boolean);
    const changed = fresh ? " Other images, models or start: all is judged anew." : "";
    const short = path.length > 1 && !judged; // stopped before the round that counts
    const rule = short
      ? `Only round ${ENOUGH} counts: play on.`
      : `Judged after round ${ENOUGH}, with images, models and start as they are.`;
    return [`${seen}${far}${changed} ${rule}`, false, parts.join() || null];
  },
  build(lab) {
    const samples = make_samples();
    const curves = make_curves();
    const identities = make_identities();
    return {
      main: [samples.node, curves.node],
      side: [
        lab.control("angle"),
        lab.control("points"),
        lab.control("k"),
        lab.control("seed"),
        identities.node,
      ],
      key: SEEN,
      show({ state, found, path }) {
        samples.show(state.angle);
        curves.show(path);
        identities.node.hidden = !found;
        if (found) identities.show(found.assignments, CLUSTERS, state.k);
      },
    };
  },
});
