// CFL on bowls, seen from the server: the models and updates in the plane, and the two lengths on
// which a split hangs.

import { BOWLS } from "../engine/bowls.js";
import { CFL } from "../engine/cfl.js";
import { minus, norm } from "../engine/contract.js";
import { range } from "../engine/random.js";
import { digits, svg } from "./dom.js";
import { client_mark, colour_of, model_mark, spoken_mark } from "./marks.js";
import { make_square } from "./square.js";

export const GROUP = 4; // clients of a true group
const EDGE = 2.5;
const [LOWEST, MIDDLE, LENGTHS] = [0.01, 0.75, 1.25]; // the lengths' logarithms in a square
const LEANING = 30; // degrees, of all bowls

export const true_groups = ({ centers }) => centers.map((_, i) => Math.floor(i / GROUP));

// The description of a state {centers, stretch, steps, step_size, eps1, eps2, gamma_max, start}.
export function described_splitting(state) {
  const { centers, stretch, eps1, eps2, gamma_max, steps, step_size } = state;
  return {
    world: { kind: BOWLS, centers, stretch, turn: LEANING },
    algorithm: { name: CFL.name, eps1, eps2, gamma_max, local: { steps, step_size } },
    seed: 0,
    models: state.start,
  };
}

// Each group now: its clients, what they would send, and what the three tests would say.
// `alter(updates, state)`: what is sent instead.
export function looked_into({ world, algorithm, state }, alter = (updates) => updates) {
  const honest = range(world.clients.length).map((i) =>
    algorithm.update(state.bank[state.assignments[i]], world.clients[i]),
  );
  const updates = alter(honest, state);
  const groups = state.bank.map((theta, row) => {
    const members = range(updates.length).filter((i) => state.assignments[i] === row);
    const own = members.map((i) => updates[i]);
    const mean = [0, 1].map((a) => own.reduce((sum, one) => sum + one[a], 0) / own.length);
    const { seen } = algorithm.bipartition(mean, own, own);
    let verdict = "is content";
    if (seen.mean >= algorithm.eps1) verdict = "has not come to rest";
    else if (seen.split) verdict = "splits";
    else if (members.length < 2) verdict = "is one client";
    else if (seen.longest > algorithm.eps2) verdict = "stays, the cut is too narrow";
    return { row, theta, members, verdict, ...seen };
  });
  return { updates, groups };
}

// "1 has not come to rest, 2 are content"; of a single group, "it has not come to rest"
export function verdicts(groups) {
  if (groups.length === 1) return `it ${groups[0].verdict}`;
  const counts = new Map();
  groups.forEach(({ verdict }) => counts.set(verdict, (counts.get(verdict) ?? 0) + 1));
  const plural = (count, verdict) =>
    count === 1
      ? verdict
      : verdict
          .replace("is one client", "are single clients")
          .replace("is ", "are ")
          .replace("has ", "have ")
          .replace(/^(split|stay)s/, "$1");
  return [...counts].map(([verdict, count]) => `${count} ${plural(count, verdict)}`).join(", ");
}

// Whether the groups of some clients are exactly the true ones, and whether some true group is torn.
export function judged(assignments, truth) {
  const pairs = truth.flatMap((group, i) => range(i).map((j) => [group === truth[j], i, j]));
  const together = ([, i, j]) => assignments[i] === assignments[j];
  return {
    torn: pairs.some((pair) => pair[0] && !together(pair)),
    exact: pairs.every((pair) => pair[0] === together(pair)),
  };
}

const called = ([x, y], words) => svg("text", { x: x + 9, y: y + 14, class: "name" }, words);

// The model of each node of the tree over the rounds: node → [[x, y] …].
function trails(path) {
  const found = new Map();
  path.forEach(({ state }) =>
    state.nodes.forEach((node, row) => {
      if (!found.has(node)) found.set(node, []);
      found.get(node).push([...state.bank[row]]);
    }),
  );
  return found;
}

function in_the_plane({ at, within, line }, { state, path, found, liar = null, foot = null }) {
  const now = path.at(-1).state;
  const rows = (node) => (now.nodes.includes(node) ? colour_of(now.nodes.indexOf(node)) : null);
  const truth = true_groups(state);
  return {
    label:
      `Plane of models: ${state.centers.length} clients at their own best models, ` +
      `${now.bank.length} models of the server.`,
    marks: [
      ...[...trails(path)].map(([node, places]) =>
        svg("polyline", {
          class: "trail",
          stroke: rows(node) ?? "currentColor",
          points: line(places.map(within)),
        }),
      ),
      ...(foot === null
        ? []
        : [
            svg("polyline", {
              points: line([foot, foot.map((value, a) => value + state.arrow[0][a])]),
              fill: "none",
              stroke: "currentColor",
              "stroke-dasharray": "1 3",
            }),
          ]),
      ...found.updates.map((update, i) => {
        const theta = now.bank[now.assignments[i]];
        const whole = i === liar && foot !== null;
        const begin_at = whole ? foot : theta;
        const end_at = begin_at.map((value, a) => value + update[a]);
        const [from, to] = [begin_at, end_at].map((one) => at(whole ? one : within(one)));
        return svg("path", {
          d: `M${from.map((v) => v.toFixed(1))}L${to.map((v) => v.toFixed(1))}`,
          stroke: "currentColor",
          "stroke-width": i === liar ? 2.4 : 1,
          "stroke-dasharray": i === liar ? "5 3" : "none",
        });
      }),
      ...now.bank.map((theta, row) => model_mark(row, ...at(within(theta)), 9)),
      ...state.centers.map((center, i) =>
        client_mark(truth[i], now.assignments[i], ...at(center), 7.5),
      ),
      ...(liar === null ? [] : [called(at(state.centers[liar]), "liar")]),
    ],
  };
}

const logarithm = (value) => Math.log10(Math.max(value, LOWEST)) + MIDDLE;

function by_lengths({ size, at, line }, { state, path, found }) {
  const place = ({ mean, longest }) =>
    at([mean, longest].map((v) => Math.max(-LENGTHS, Math.min(LENGTHS, logarithm(v)))));
  const now = path.at(-1).state;
  const seen = new Map();
  path.slice(1).forEach(({ state: { tests } }) =>
    tests.forEach((test) => {
      if (!seen.has(test.node)) seen.set(test.node, []);
      seen.get(test.node).push(test);
    }),
  );
  found.groups.forEach((group) => {
    const node = now.nodes[group.row];
    seen.set(node, [...(seen.get(node) ?? []), group]);
  });
  const [x1, y2] = at([logarithm(state.eps1), logarithm(state.eps2)]);
  const ticks = [0.01, 0.1, 1];
  return {
    label:
      `Longest update against mean update, both logarithmic. Split where the mean is below ` +
      `${digits(state.eps1)} and the longest above ${digits(state.eps2)}.`,
    marks: [
      svg("path", { d: `M0 0H${x1}V${y2}H0Z`, fill: "currentColor", "fill-opacity": 0.1 }),
      svg("path", { class: "grid", d: `M${x1} 0V${size}M0 ${y2}H${size}` }),
      ...ticks.slice(1).flatMap((value) => {
        const [x, y] = at([logarithm(value), logarithm(value)]);
        return [
          svg("text", { x, y: size - 4, "text-anchor": "middle" }, `${value}`),
          svg("text", { x: 4, y: y + 4 }, `${value}`),
        ];
      }),
      svg("text", { x: size - 4, y: size - 19, "text-anchor": "end" }, "mean update"),
      svg("text", { x: 4, y: 14 }, "longest update"),
      ...[...seen].flatMap(([node, tests]) => {
        const row = now.nodes.indexOf(node);
        const colour = row < 0 ? "currentColor" : colour_of(row);
        const points = tests.map(place);
        const drawn = points.map((point) => point.map((v) => v.toFixed(1)).join(",")).join(" ");
        const [x, y] = points.at(-1);
        return [
          svg("polyline", { class: "trail", stroke: colour, points: drawn }),
          ...points.map(([cx, cy]) => svg("circle", { cx, cy, r: 2, fill: colour })),
          ...(row < 0
            ? [svg("path", { class: "star", d: `M${x - 4} ${y - 4}l8 8m0 -8l-8 8` })]
            : [model_mark(row, x, y, 7, size)]),
        ];
      }),
    ],
  };
}

// Both pictures. lab as in laboratory.js; more(now): further handles in the plane; foot(now): where the
// arrow of the liar begins in the picture, or null where that is its model.
// → {plane, lengths: nodes, show(now)}
export function make_splitting(lab, { more = () => [], liar = null, foot = () => null } = {}) {
  const plane = make_square(EDGE, in_the_plane);
  const lengths = make_square(LENGTHS, by_lengths);
  const things = ({ state }) => [
    ...state.centers.map((center, i) => ({
      key: `client ${i}`,
      name: `client ${i}, ${spoken_mark(Math.floor(i / GROUP))}`,
      at: center,
      draw: () => svg("g"),
      moved: (at, begins) =>
        lab.change({ centers: state.centers.map((one, j) => (j === i ? at : one)) }, begins),
    })),
    {
      key: "start",
      name: "start",
      at: state.start[0],
      draw: (x, y) => svg("rect", { x: x - 6, y: y - 6, width: 12, height: 12, class: "star" }),
      moved: (at, begins) => lab.change({ start: [at], rounds: 0 }, begins),
    },
  ];
  const limited = (name, value) =>
    Math.min(TABLE[name].high, Math.max(TABLE[name].low, Math.round(100 * value) / 100));
  const corner = ({ state }) => ({
    key: "thresholds",
    name: "thresholds",
    at: [logarithm(state.eps1), logarithm(state.eps2)],
    draw: (x, y) =>
      svg("path", { d: `M${x - 9} ${y}H${x + 9}M${x} ${y - 9}V${y + 9}`, class: "star" }),
    moved: (at, begins) => {
      const [eps1, eps2] = at.map((value) => 10 ** (value - MIDDLE));
      lab.change({ eps1: limited("eps1", eps1), eps2: limited("eps2", eps2) }, begins);
    },
    pressed: ([right, up], far) => {
      const by = far ? 0.1 : 0.01;
      lab.change({
        eps1: limited("eps1", state.eps1 + by * right),
        eps2: limited("eps2", state.eps2 + by * up),
      });
    },
    said: `mean below ${digits(state.eps1)}, longest above ${digits(state.eps2)}`,
  });
  return {
    plane: plane.node,
    lengths: lengths.node,
    show(now) {
      plane.show({ ...now, liar, foot: foot(now) }, [...things(now), ...more(now)]);
      lengths.show(now, [corner(now)]);
    },
  };
}

// Nothing has split for some rounds.
export function unsplit(path) {
  const nodes = (back) => path.at(back).state.nodes.join();
  return path.length > 10 && nodes(-8) === nodes(-1);
}

// Nor does any model move.
export function settled(path) {
  if (!unsplit(path)) return false;
  const [before, last] = [path.at(-2).state.bank, path.at(-1).state.bank];
  return last.every((theta, row) => norm(minus(theta, before[row])) < 2e-3);
}
