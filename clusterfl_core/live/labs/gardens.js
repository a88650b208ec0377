// Gardens: EM for three hidden groups of clients, from soft to hard.

import { EM, hard_step, soft_step } from "../engine/em.js";
import { loss_table, lowest } from "../engine/ifca.js";
import { make_linear } from "../engine/linear.js";
import { step } from "../engine/loop.js";
import { best_matching } from "../engine/solve.js";
import { button } from "../parts/controls.js";
import { digits, kept_number, svg } from "../parts/dom.js";
import { make_identities } from "../parts/identities.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, group_mark, ink_on } from "../parts/marks.js";
import { make_square } from "../parts/square.js";
import { make_starts } from "../parts/starts.js";

const EDGE = 3; // of the growth shown; warmth is shown from -1.5 to 1.5
const WIDE = EDGE / 1.5;
const HOLD = 1.35; // the warmth at which a line has its handles
const SURE = 0.9; // of a client, to be called its line
const STILL = 1e-6; // what a line moves, at most, when EM rests
const COLD = 0.05; // a temperature that changes nothing any more
const ENOUGH = 17; // identities of 18
const DASHES = ["none", "9 5", "3 4"];
const NAMES = ["line 0", "line 1", "line 2"];

const temperature = ({ heat, kept }, round) => heat * kept ** round;

const world_of = ({ points, seed }) =>
  make_linear({
    truth: GIVEN.truth,
    clients: GIVEN.clients,
    points,
    noise: GIVEN.noise,
    seed,
    features: "line",
  });

// EM with T sigma^2 in place of sigma^2, and less T each step.
function cooled_em(settings, model) {
  const at = (round) => {
    const heat = temperature(settings, round);
    const noise = heat > 0 ? GIVEN.noise * Math.sqrt(heat) : GIVEN.noise;
    return EM({ model, clusters: GIVEN.truth.length, soft: heat > 0, noise });
  };
  return { ...at(0), client_step: (jobs, world) => at(jobs.round).client_step(jobs, world) };
}

// How many clients have the right line, under the best renaming.
function right_identities(identities, clusters, lines) {
  const table = Array.from({ length: lines }, () => Array(lines).fill(0));
  identities.forEach((j, i) => {
    table[clusters[i]][j] += 1;
  });
  return best_matching(table).reduce((sum, j, group) => sum + table[group][j], 0);
}

// Whether most clients of each group are on a line that is no other group's.
function all_apart(identities, clusters) {
  const most = GIVEN.truth.map((_, group) => {
    const counts = GIVEN.truth.map(
      (__, j) => identities.filter((own, i) => own === j && clusters[i] === group).length,
    );
    return counts.indexOf(Math.max(...counts));
  });
  return new Set(most).size === most.length;
}

function judged(bank, world) {
  const losses = loss_table(world.model, bank, world);
  const identities = losses.map(lowest);
  return {
    losses,
    identities,
    right: right_identities(identities, world.clusters, bank.length),
    cost: losses.reduce((sum, row) => sum + Math.min(...row), 0) / losses.length,
  };
}

function looked_at(settings, path) {
  const { world, state } = path.at(-1);
  const found = judged(state.bank, world);
  const heat = temperature(settings, state.round);
  const sure = found.losses.map((row, i) => {
    const q =
      heat > 0
        ? soft_step(row, state.shares, world.counts[i], GIVEN.noise * Math.sqrt(heat))
        : hard_step(row);
    return Math.max(...q) > SURE;
  });
  const best = judged(GIVEN.truth, world);
  return { ...found, sure, heat, best, world, lines: state.bank.map((line) => [...line]) };
}

const crowded = ({ lines }) => JSON.stringify(lines) === JSON.stringify(GIVEN.crowded);
const how_soft = (heat) => (heat > 0 ? `temperature ${digits(heat, 2)}` : "hard choices");

function garden_drawn({ at, line }, { world, lines, identities, sure }) {
  const spot = (warmth, growth) => [WIDE * warmth, growth];
  const paths = world.clients.map(({ n, x, y }) =>
    Array.from({ length: n }, (_, l) => [x[2 * l], y[l]]).sort((one, other) => one[0] - other[0]),
  );
  const [left, low] = at([-EDGE, -EDGE]);
  const marks = [
    ...paths.map((points, i) =>
      svg("polyline", {
        fill: "none",
        stroke: sure[i] ? colour_of(identities[i]) : "currentColor",
        "stroke-opacity": 0.55,
        "stroke-dasharray": DASHES[identities[i]],
        points: line(points.map(([warmth, growth]) => spot(warmth, growth))),
      }),
    ),
    ...lines.map(([slope, height], j) =>
      svg("polyline", {
        class: "trail",
        stroke: colour_of(j),
        "stroke-width": 3,
        "stroke-dasharray": DASHES[j],
        points: line([-1.5, 1.5].map((warmth) => spot(warmth, slope * warmth + height))),
      }),
    ),
    ...paths.flatMap((points, i) =>
      points.map(([warmth, growth]) => {
        const [x, y] = at(spot(warmth, growth));
        const look = sure[i]
          ? { fill: colour_of(identities[i]), class: "edge" }
          : { fill: "none", class: "star" };
        return group_mark(world.clusters[i], x, y, 5, look);
      }),
    ),
    svg("text", { x: left + 6, y: 16 }, "growth ↑"),
    svg("text", { x: -left + 2 * at([0, 0])[0] - 6, y: low - 6, "text-anchor": "end" }, "warmth →"),
  ];
  const said = lines.map(
    ([slope, height], j) => `line ${j} has slope ${digits(slope)} and height ${digits(height)}`,
  );
  return { label: `Points of eighteen clients and three lines: ${said.join("; ")}.`, marks };
}

laboratory("gardens", {
  title: "gardens",
  first(settings) {
    const world = world_of(settings);
    const algorithm = cooled_em(settings, world.model);
    return { world, algorithm, state: algorithm.init(world, settings.seed, settings.lines) };
  },
  next: (_, { world, algorithm, state }) => ({
    world,
    algorithm,
    state: step(algorithm, world, state),
  }),
  rest({ heat, kept }, found, path) {
    if (path.length < 2 || (heat > 0 && kept < 1 && found.heat > COLD)) return false;
    const [before, after] = path.slice(-2).map(({ state }) => state.bank);
    return after.every((row, j) => row.every((value, a) => Math.abs(value - before[j][a]) < STILL));
  },
  compute: looked_at,
  changes: Object.fromEntries(
    ["points", "heat", "kept", "seed"].map((entry) => [entry, () => ({ rounds: 0 })]),
  ),
  told(settings, { right, identities, heat, cost }) {
    const empty = NAMES.filter((_, j) => !identities.includes(j));
    const idle = empty.length ? ` Nobody is nearest to ${empty.join(" and ")}.` : "";
    return (
      `Step ${settings.rounds}, ${how_soft(heat)}: ${right} of ${identities.length} identities ` +
      `right, cost ${digits(cost, 3)}.${idle}`
    );
  },
  readings: (_, { right, identities, cost, best }) => [
    ["identities right", (100 * right) / identities.length, 0, " %"],
    ["identities right, true lines", (100 * best.right) / identities.length, 0, " %"],
    ["cost (3.4)", cost, 4],
    ["cost (3.4), true lines", best.cost, 4],
  ],
  python: ({ points, heat, kept, seed, lines, rounds }) =>
    [
      "import clusterfl_core as cf",
      "import torch",
      "from clusterfl_core.live import replay",
      "",
      `truth = ${JSON.stringify(GIVEN.truth)}`,
      `deal = {"clients": ${GIVEN.clients}, "points": ${points}, "noise": ${GIVEN.noise}, "seed": ${seed}}`,
      'gardens = replay.linear(truth, features="line", **deal)',
      "settings = {",
      `    "soft": ${heat > 0 ? "True" : "False"},`,
      `    "noise": [${GIVEN.noise} * (${heat || 1} * ${kept}**t) ** 0.5 for t in range(${rounds})],`,
      `    "models": ${JSON.stringify(lines)},`,
      "}",
      `lines, _, _ = replay.em(gardens, 3, ${rounds}, **settings)`,
      "",
      "",
      "def judged(lines):",
      "    points = gardens.train",
      "    losses = ((points.y[..., None] - points.x @ lines.T) ** 2).mean(1)",
      "    right = cf.evaluation.identity_accuracy(losses.argmin(1), gardens.clusters)",
      "    return 100 * right, float(losses.min(1).values.mean())",
      "",
      "",
      "right, cost = judged(lines)",
      "best_right, best_cost = judged(torch.tensor(truth).double())",
      "print(right, best_right, cost, best_cost)",
      "",
    ].join("\n"),
  task(settings, { right, identities, best }, _, memory) {
    if (!crowded(settings)) return ["Begin with the crowded start.", false];
    if (settings.seed !== 5) return ["The task is about deal 5 of the gardens.", false];
    const seen = `${right} of ${identities.length} identities right`;
    memory.most = Math.max(memory.most ?? 0, settings.rounds ? right : 0);
    if (settings.rounds && right >= ENOUGH)
      return [`Solved: the crowded start is free, with ${seen}.`, true];
    if (best.right < ENOUGH)
      return [
        `With so few points even the true lines get only ${best.right} of ${identities.length} right.`,
        false,
      ];
    const most = memory.most ? `; most so far from the crowded start: ${memory.most}` : "";
    return [`${seen}${most}.`, false];
  },
  buttons: (lab) =>
    [
      ["Good start", "good"],
      ["Crowded start", "crowded"],
    ].map(([text, start]) =>
      button(text, () => lab.change({ lines: GIVEN[start].map((row) => [...row]), rounds: 0 })),
    ),
  build(lab) {
    const square = make_square(EDGE, garden_drawn);
    const identities = make_identities();
    const starts = make_starts({
      run: () => {
        const { world, algorithm } = lab.keeping.path[0];
        return { world, algorithm, description: { seed: lab.keeping.state.seed } };
      },
      radius: 1.5,
      success: (bank, world) => all_apart(judged(bank, world).identities, world.clusters),
      load(models, words) {
        lab.change({ lines: models.map((line) => [...line]), rounds: 0 });
        lab.say(`The start ${words} is on the table. Press Play.`);
      },
      told: (sentence) => lab.say(sentence, false),
    });
    let drawn = "";
    const handle = ({ found, state }, j, side) => {
      const warmth = side * HOLD;
      const heights = [-HOLD, HOLD].map((at) => found.lines[j][0] * at + found.lines[j][1]);
      const end = side < 0 ? 0 : 1;
      const to = (height, begins) => {
        const ends = heights.map((one, e) => (e === end ? height : one));
        const line = [(ends[1] - ends[0]) / (2 * HOLD), (ends[0] + ends[1]) / 2];
        const { low, high } = TABLE.lines;
        const lines = found.lines.map((own, i) =>
          (i === j ? line : own).map((one) => kept_number(Math.max(low, Math.min(high, one)))),
        );
        lab.change({ lines, rounds: 0 }, begins);
      };
      const where = side < 0 ? "cold" : "warm";
      return {
        key: `${j}${where}`,
        name: `line ${j}, ${where} end`,
        at: [WIDE * warmth, heights[end]],
        draw: (x, y) =>
          svg(
            "g",
            {},
            svg("circle", { cx: x, cy: y, r: 9, fill: colour_of(j), class: "edge" }),
            svg(
              "text",
              { x, y: y + 4.5, class: "number", style: `fill:${ink_on(colour_of(j))}` },
              `${j}`,
            ),
          ),
        moved: ([, height], begins) => to(Math.round(100 * height) / 100, begins),
        pressed: ([right, up], far) => to(heights[end] + (far ? 0.5 : 0.1) * (right + up), true),
        range: [-EDGE, EDGE, Math.max(-EDGE, Math.min(EDGE, heights[end]))],
        said: `growth ${digits(heights[end])} at warmth ${digits(warmth)}, step ${state.rounds}`,
      };
    };
    return {
      main: [square.node],
      side: [
        ...["heat", "kept", "points", "seed"].map((entry) => lab.control(entry)),
        identities.node,
      ],
      below: [starts.node],
      key:
        "Each thin path joins the points of one client, in the colour and dashes of the line that fits " +
        "it best; shape: its true group; hollow: no line has nine tenths of it. Thick: the three lines; " +
        "pull their ends, and a new run begins. A temperature of T takes the noise in (3.6) for √T times " +
        "as large as it is: 1 is soft EM, 0 hard EM.",
      show(now) {
        square.show(
          now.found,
          now.found.lines.flatMap((_, j) => [handle(now, j, -1), handle(now, j, 1)]),
        );
        identities.show(now.found.identities, now.found.world.clusters, now.found.lines.length);
        const { points, heat, kept, seed } = now.state;
        const settings = JSON.stringify([points, heat, kept, seed]);
        if (settings !== drawn) starts.forget();
        drawn = settings;
      },
    };
  },
});
