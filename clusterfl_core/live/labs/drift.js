// Drift: where FedAvg comes to rest when its clients' losses are bowls.

import { BOWLS, make_bowls, resting_point } from "../engine/bowls.js";
import { FedAvg } from "../engine/fedavg.js";
import { range } from "../engine/random.js";
import { digits, svg } from "../parts/dom.js";
import { beside, circles } from "../parts/labels.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, group_mark, spoken_mark, star_mark } from "../parts/marks.js";
import { engine_rounds } from "../parts/rounds.js";
import { make_square } from "../parts/square.js";

const EDGE = 2.5;
const [FAR, NEAR, APART, MANY] = [0.5, 0.01, 1, 5]; // what the task asks for
const STILL = 1e-4;
const SEEN =
  "Ellipses: points of equal loss of each client, marks: their bottoms. Line: the model, round by " +
  "round. Star: the best model for all points. Ring: where FedAvg comes to rest, computed from " +
  "the bowls without running it. Losses are exact bowls: no noise, no chance, everybody takes part.";

const bowls_of = ({ centers, stretch, turn, pairs }) => ({ centers, stretch, turn, pairs });
const apart = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]);

const rounds = engine_rounds((state) => ({
  world: { kind: BOWLS, ...bowls_of(state) },
  algorithm: {
    name: FedAvg.name,
    local: { steps: state.steps, step_size: state.step_size },
  },
  seed: 0,
  models: state.start,
}));

function drawn({ size, at, within, line }, { state, found, path }) {
  const scale = size / (2 * EDGE);
  const models = path.map((run) => within(run.state.bank[0]));
  const ellipse = (i, level) => {
    const [x, y] = at(state.centers[i]);
    const s = state.stretch[i];
    return svg("ellipse", {
      rx: scale * Math.sqrt((2 * level) / s),
      ry: scale * Math.sqrt(2 * level * s),
      transform: `translate(${x.toFixed(1)} ${y.toFixed(1)}) rotate(${-state.turn[i]})`,
      fill: "none",
      stroke: colour_of(i),
      "stroke-width": state.chosen === `${i}` ? 2.2 : 1.2,
    });
  };
  const [best, rest, now] = [found.best, found.rest, models.at(-1)].map((one) => at(within(one)));
  const way = models.map(at).flatMap(([x, y], t, all) => {
    const [u, v] = all[Math.max(0, t - 1)];
    return range(8).map((part) => [x + (part * (u - x)) / 8, y + (part * (v - y)) / 8]);
  });
  const bottoms = [...state.centers, state.start[0]].map(at);
  const taken = [
    ...circles(bottoms, 11),
    ...circles([best, rest], 13),
    ...circles([now], 6),
    ...circles(way, 3),
  ];
  const named = (spot, words) =>
    svg("text", { class: "name", ...beside(spot, 12, words, taken, size) }, words);
  return {
    label:
      `Plane of models: four bowls; the best model at ${digits(found.best[0])}, ` +
      `${digits(found.best[1])}; FedAvg rests at ${digits(found.rest[0])}, ${digits(found.rest[1])}.`,
    marks: [
      ...state.centers.flatMap((_, i) => [0.08, 0.32].map((level) => ellipse(i, level))),
      svg("polyline", { class: "trail", stroke: "currentColor", points: line(models) }),
      ...models.map((one) => {
        const [cx, cy] = at(one);
        return svg("circle", { cx, cy, r: 2.5, fill: "currentColor" });
      }),
      star_mark(...best, 12),
      svg("circle", { class: "star", cx: rest[0], cy: rest[1], r: 9 }),
      svg("circle", { cx: now[0], cy: now[1], r: 5, fill: "currentColor" }),
      ...(apart(best, rest) > 26
        ? [named(best, "best"), named(rest, "rest")]
        : [named(best, "best and rest")]),
    ],
  };
}

laboratory("drift", {
  title: "drift",
  ...rounds,
  compute(state, path) {
    const world = make_bowls(bowls_of(state));
    const { steps, step_size, centers } = state;
    const best = resting_point(world, centers, { steps: 1, step_size });
    const rest = resting_point(world, centers, { steps, step_size });
    return { best, rest, apart: apart(best, rest), model: [...path.at(-1).state.bank[0]] };
  },
  rest: (state, { rest, model }) => apart(rest, model) < STILL || state.rounds >= TABLE.rounds.high,
  told: ({ steps }, found, path) =>
    `Round ${path.length - 1}. With ${steps} local ${steps === 1 ? "step" : "steps"} FedAvg rests ` +
    `${digits(found.apart)} from the best model; the model is ${digits(apart(found.rest, found.model))} ` +
    `from its rest.`,
  readings: (_, { model, best, rest, apart: far }) => [
    ["model", model],
    ["best for all points", best],
    ["FedAvg rests at", rest],
    ["from best to rest", far, 3],
  ],
  python: (state) =>
    rounds.python(state, [
      "best = replay.resting_point(federation, cf.LocalSGD(1, 0.1))",
      "rest = replay.resting_point(federation, settings.local)",
      "model = run.models.flatten()[0]",
      "print(*model.tolist(), *best.tolist(), *rest.tolist(), float((best - rest).norm()))",
    ]),
  task({ steps, centers }, found, _, memory) {
    if (found.apart >= FAR) memory.far = true;
    const part = memory.far ? "far" : null;
    const widest = Math.max(...centers.flatMap((a) => centers.map((b) => apart(a, b))));
    if (!memory.far)
      return [`Rest and best are ${digits(found.apart)} apart, not yet ${digits(FAR, 1)}.`, false];
    if (steps < MANY)
      return [`They were ${digits(FAR, 1)} apart. Now at least ${MANY} local steps.`, false, part];
    if (widest < APART)
      return [
        `Bottoms in one place are no art: keep two of them at least ${APART} apart.`,
        false,
        part,
      ];
    if (found.apart >= NEAR)
      return [
        `They were ${digits(FAR, 1)} apart; now they are ${digits(found.apart)}. Bring them together.`,
        false,
        part,
      ];
    return [
      `Solved: ${steps} local steps, bottoms up to ${digits(widest, 1)} apart, and FedAvg rests at the best model.`,
      true,
    ];
  },
  build(lab) {
    const square = make_square(EDGE, drawn);
    const chosen = ({ chosen: bowl }) => Number(bowl);
    const things = (state) => [
      ...state.centers.map((center, i) => ({
        key: `bottom ${i}`,
        name: `bottom of client ${i}, ${spoken_mark(i)}`,
        at: center,
        draw: (x, y) => group_mark(i, x, y, 8, { fill: colour_of(i), class: "edge" }),
        moved: (at, begins) =>
          lab.change(
            { centers: state.centers.map((one, j) => (j === i ? at : one)), chosen: `${i}` },
            begins,
          ),
      })),
      {
        key: "start",
        name: "start",
        at: state.start[0],
        draw: (x, y) => svg("rect", { x: x - 6, y: y - 6, width: 12, height: 12, class: "star" }),
        moved: (at, begins) => lab.change({ start: [at], rounds: 0 }, begins),
      },
    ];
    return {
      main: [square.node],
      side: [
        lab.control("steps"),
        lab.control("step_size"),
        lab.control("chosen"),
        lab.control("stretch", chosen),
        lab.control("turn", chosen),
        lab.control("pairs", chosen),
      ],
      key: `${SEEN} Drag the marks and the start (empty square), or move them with the arrow keys (Shift: far).`,
      show: (now) => square.show(now, things(now.state)),
    };
  },
});
