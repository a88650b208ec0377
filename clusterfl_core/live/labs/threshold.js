// Threshold: a tree of local models or of loss vectors, cut at a height that somebody must name.

import { LinearRegression } from "../engine/linear.js";
import { range, stream } from "../engine/random.js";
import { least_squares } from "../engine/solve.js";
import { make_chart } from "../parts/chart.js";
import { digits, svg } from "../parts/dom.js";
import { laboratory } from "../parts/laboratory.js";
import { client_mark, group_mark } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const KINDS_OF_CLIENTS = 4;
const EACH_HAS = 3; // clients of a group, but for the last
const APART = 2.4; // of the two pairs of groups
const NARROW = 10; // percent of the tree: what the task calls a narrow window
const PERCENTS = range(101);
const [LEAVES, ROOT] = [-0.86, 0.2]; // in a square from -1 to 1: the tree
const [TABLE_LEFT, TABLE_RIGHT, ROWS_HIGH, ROWS_LOW] = [0.31, 0.97, 0.7, -0.78];
const SEEN =
  "Left: the tree. Groups join as far to the right as they are apart; shapes are true groups, " +
  "colours and numbers the groups at the threshold, the dashed line that you drag. A client is right " +
  "where its group, matched one to one with a true group as well as can be, is its own. Right: the " +
  "loss vectors. A row has one client's losses under the lone models of all, faint where they are " +
  "small; " +
  "frames are the groups found. Below: the error of the groups' means, thick where every client " +
  "stands right, which nobody outside a laboratory sees. Simplified: lines with two unknowns, " +
  "fitted exactly; a group's model is the mean of its clients'.";

const distance_of = (one, other) =>
  Math.sqrt(one.reduce((sum, value, a) => sum + (value - other[a]) ** 2, 0));

// The tree of clients by their distances: merges [one, other, height], named as SciPy names them.
function tree_of(distances, link) {
  const m = distances.length;
  const far = distances.map((row) => [...row]);
  const nodes = range(m).map((i) => ({ name: i, size: 1 }));
  const merges = [];
  const joined = {
    single: (a, b) => Math.min(a, b),
    complete: (a, b) => Math.max(a, b),
    average: (a, b, sizes) => (sizes[0] * a + sizes[1] * b) / (sizes[0] + sizes[1]),
  }[link];
  const left = new Set(range(m));
  while (left.size > 1) {
    let least = [0, 0, Infinity];
    for (const i of left)
      for (const j of left) if (i < j && far[i][j] < least[2]) least = [i, j, far[i][j]];
    const [i, j, height] = least;
    merges.push([nodes[i].name, nodes[j].name, height]);
    const sizes = [nodes[i].size, nodes[j].size];
    for (const other of left)
      if (other !== i && other !== j)
        far[i][other] = far[other][i] = joined(far[i][other], far[j][other], sizes);
    nodes[i] = { name: m + merges.length - 1, size: sizes[0] + sizes[1] };
    left.delete(j);
  }
  return merges;
}

// The clients of each node, and their order in the picture: what joins stands together.
function members_of(merges, m) {
  const members = range(m).map((i) => [i]);
  for (const [one, other] of merges) {
    const pair = [members[one], members[other]].sort((a, b) => Math.min(...a) - Math.min(...b));
    members.push(pair.flat());
  }
  return members;
}

// The group of each client after the first `count` merges, numbered in order of first clients.
function groups_after(merges, members, m, count) {
  const label = range(m);
  for (let s = 0; s < count; s++) {
    const least = Math.min(...members[m + s]);
    members[m + s].forEach((i) => {
      label[i] = least;
    });
  }
  const names = [...new Set(label)];
  return label.map((one) => names.indexOf(one));
}

// How many clients stand right under the best one-to-one matching of found and true groups.
function standing_right(found, clusters) {
  const count = Math.max(...found) + 1;
  let best = Array(1 << KINDS_OF_CLIENTS).fill(-Infinity);
  best[0] = 0;
  for (let j = 0; j < count; j++) {
    const next = [...best];
    best.forEach((worth, taken) => {
      for (let c = 0; c < KINDS_OF_CLIENTS; c++) {
        if (taken & (1 << c)) continue;
        const both = found.filter((one, i) => one === j && clusters[i] === c).length;
        const at = taken | (1 << c);
        next[at] = Math.max(next[at], worth + both);
      }
    });
    best = next;
  }
  return Math.max(...best);
}

// What chance gives a client, as make_linear draws it (engine/linear.js): x, x, noise of each point.
// It is kept, so that a slider that moves by a point draws one point.
const chances = new Map();
function chance_of(draw, group, place, points) {
  const name = `${draw} ${group} ${place}`;
  if (!chances.has(name))
    chances.set(name, { source: stream(draw, "points", group, place), drawn: [] });
  const { source, drawn } = chances.get(name);
  while (drawn.length < 3 * points) drawn.push(source.normal());
  return drawn;
}

// A client with the means of x x', x y and y y over its points.
function client_from(draw, group, place, points, theta, noise) {
  const drawn = chance_of(draw, group, place, points);
  const [xx, xy] = [new Float64Array(4), new Float64Array(2)];
  let yy = 0;
  for (let l = 0; l < points; l++) {
    const [a, b, e] = [drawn[3 * l], drawn[3 * l + 1], drawn[3 * l + 2]];
    const y = a * theta[0] + b * theta[1] + noise * e;
    xx[0] += (a * a) / points;
    xx[1] += (a * b) / points;
    xx[3] += (b * b) / points;
    xy[0] += (a * y) / points;
    xy[1] += (b * y) / points;
    yy += (y * y) / points;
  }
  xx[2] = xx[1];
  return { n: points, xx, xy, yy, cluster: group };
}

let grown = { name: "", trees: null };

// All that does not depend on the threshold, a piece after each yield.
function* growing({ near, noise, points, size, draw, by, link }) {
  const name = JSON.stringify([near, noise, points, size, draw, by, link]);
  if (grown.name === name) return;
  const truth = [-1, 1].flatMap((side) =>
    [-1, 1].map((up) => [(side * APART) / 2, (up * near) / 2]),
  );
  const sizes = [EACH_HAS, EACH_HAS, EACH_HAS, size];
  const clients = [];
  for (const [group, count] of sizes.entries()) {
    for (const place of range(count)) {
      clients.push(client_from(draw, group, place, points, truth[group], noise));
      yield;
    }
  }
  const clusters = clients.map(({ cluster }) => cluster);
  const m = clients.length;
  const alone = clients.map((client) => [...least_squares(client.xx, client.xy)]);
  const model = LinearRegression(2);
  const losses = clients.map((client) => alone.map((theta) => model.loss(theta, client)));
  const between = {
    models: (i, j) => distance_of(alone[i], alone[j]),
    cross: (i, j) => (losses[i][j] + losses[j][i]) / 2,
    losses: (i, j) => distance_of(losses[i], losses[j]),
  }[by];
  const distances = range(m).map((i) => range(m).map((j) => between(i, j)));
  yield;
  const merges = tree_of(distances, link);
  const members = members_of(merges, m);
  const squared = (theta, i) => distance_of(theta, truth[clusters[i]]) ** 2;
  yield;
  const cuts = range(m).map((count) => {
    const groups = groups_after(merges, members, m, count);
    const means = range(Math.max(...groups) + 1).map((j) => {
      const own = alone.filter((_, i) => groups[i] === j);
      return [0, 1].map((a) => own.reduce((sum, one) => sum + one[a], 0) / own.length);
    });
    const error = groups.reduce((sum, j, i) => sum + squared(means[j], i), 0) / m;
    return { groups, error, right: standing_right(groups, clusters) / m };
  });
  const top = merges.at(-1)[2];
  const percents = merges.map(([, , height]) => (100 * height) / top);
  // The window: from the merge that makes all right to the one that ends it.
  const exact = cuts.findIndex(({ right }) => right === 1);
  const window = exact < 0 ? null : [exact ? percents[exact - 1] : 0, percents[exact] ?? 100];
  const pairs = distances.flatMap((row, i) => row.slice(0, i));
  const inside =
    sizes.reduce((sum, count) => sum + count * (count - 1), 0) / (m * (m - 1));
  const measures = { percents, window, top, pairs, inside, m };
  grown = { name, trees: { clusters, losses, merges, members, cuts, ...measures } };
}

function grown_from(state) {
  for (const _ of growing(state));
  return grown.trees;
}

function cut_at(state) {
  const trees = grown_from(state);
  const limit = (state.threshold / 100) * trees.top;
  const cut_of = (height) => trees.cuts[trees.merges.filter(([, , at]) => at <= height).length];
  const cut = cut_of(limit);
  return {
    ...trees,
    ...cut,
    limit,
    count: Math.max(...cut.groups) + 1,
    near_pairs: trees.pairs.filter((one) => one <= limit).length / trees.pairs.length,
    curve: PERCENTS.map((percent) => [percent, cut_of((percent / 100) * trees.top).error]),
    alone: trees.cuts[0].error,
    moved: state.by === "models" ? trees.m : trees.m * (trees.m + Math.max(...cut.groups) + 1),
  };
}

const across_tree = (percent) => LEAVES + ((ROOT - LEAVES) * percent) / 100;

function drawn_tree({ size, at, line }, { state, found }) {
  const { m, merges, members, percents, groups, clusters, losses } = found;
  const order = members.at(-1);
  const row_of = (i) =>
    ROWS_HIGH - ((ROWS_HIGH - ROWS_LOW) * (order.indexOf(i) + 0.5)) / m;
  const spots = range(m).map((i) => [LEAVES, row_of(i)]);
  const lines = merges.map(([one, other], s) => {
    const x = across_tree(percents[s]);
    const [[a, b], [c, d]] = [spots[one], spots[other]];
    spots.push([x, (b + d) / 2]);
    const corners = [
      [a, b],
      [x, b],
      [x, d],
      [c, d],
    ];
    const below = percents[s] <= state.threshold;
    return svg("polyline", {
      points: line(corners),
      fill: "none",
      stroke: "currentColor",
      "stroke-width": below ? 2.4 : 1,
      "stroke-opacity": below ? 1 : 0.55,
    });
  });
  const radius = Math.max(5.5, Math.min(9, (0.36 * size * (ROWS_HIGH - ROWS_LOW)) / 2 / m));
  const side = (TABLE_RIGHT - TABLE_LEFT) / m;
  const high = (ROWS_HIGH - ROWS_LOW) / m;
  const logs = losses.map((row) => row.map((one) => Math.log(one + 1e-3)));
  const [least, most] = [Math.min(...logs.flat()), Math.max(...logs.flat())];
  const box = (left, top, wide, tall, more) => {
    const [x, y] = at([left, top]);
    const [right, low] = at([left + wide, top - tall]);
    return svg("rect", { x, y, width: right - x, height: low - y, ...more });
  };
  const cells_of = order.flatMap((i, row) =>
    order.map((j, column) =>
      box(TABLE_LEFT + side * column, ROWS_HIGH - high * row, side, high, {
        fill: "currentColor",
        "fill-opacity": (0.06 + (0.7 * (logs[i][j] - least)) / (most - least)).toFixed(3),
      }),
    ),
  );
  const frames = range(found.count).map((j) => {
    const rows = order.map((i, row) => (groups[i] === j ? row : -1)).filter((row) => row >= 0);
    const [from, many] = [Math.min(...rows), rows.length];
    return box(TABLE_LEFT + side * from, ROWS_HIGH - high * from, side * many, high * many, {
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 2,
    });
  });
  const [x, top] = at([across_tree(state.threshold), ROWS_HIGH]);
  const [, low] = at([0, ROWS_LOW]);
  const text = (spot, words, more = {}) => {
    const [left, y] = at(spot);
    return svg("text", { x: left, y: y + 4, "text-anchor": "middle", ...more }, words);
  };
  const marks = [
    ...[0, 50, 100].map((percent) => text([across_tree(percent), -0.86], `${percent} %`)),
    text([(LEAVES + ROOT) / 2, -0.95], "of the tree's height"),
    text([(TABLE_LEFT + TABLE_RIGHT) / 2, 0.8], "loss vectors"),
    text([(TABLE_LEFT + TABLE_RIGHT) / 2, -0.86], "lone models"),
    ...cells_of,
    ...frames,
    ...lines,
    svg("path", {
      d: `M${x} ${top - 6}V${low}`,
      stroke: "currentColor",
      "stroke-width": 2,
      "stroke-dasharray": "6 4",
    }),
    ...order.map((i) => {
      const [left, y] = at([-0.92, row_of(i)]);
      return client_mark(clusters[i], groups[i], left, y, radius);
    }),
  ];
  const label =
    `Tree of ${m} clients and their loss vectors. At ${state.threshold} percent of its height ` +
    `are ${found.count} groups; ${digits(100 * found.right, 0)} percent of clients stand right.`;
  return { label, marks };
}

const in_window = ({ window, right }) => window !== null && right === 1;

laboratory("threshold", {
  title: "threshold",
  prepare: growing,
  compute: cut_at,
  told: ({ threshold }, { count, right, m, near_pairs, error, alone }) =>
    `At ${threshold} % of the tree's height, ${digits(100 * near_pairs, 0)} % of the pairs are within ` +
    `the threshold: ${count} ${count === 1 ? "group" : "groups"}, ${Math.round(right * m)} of ${m} ` +
    `clients in the right one. Mean squared error ${digits(error, 3)}; alone ${digits(alone, 3)}.`,
  readings: (_, { limit, count, right, near_pairs, inside, error, alone, moved }) => [
    ["threshold", limit, 3],
    ["groups", count, 0],
    ["in the right group", 100 * right, 1, " %"],
    ["pairs within the threshold", 100 * near_pairs, 1, " %"],
    ["pairs within true groups", 100 * inside, 1, " %"],
    ["error of the groups' means", error, 4],
    ["error of training alone", alone, 4],
    ["models moved", moved, 0],
  ],
  python: ({ threshold, by, link, near, noise, points, size, draw }) =>
    [
      "from clusterfl_core.live.labs.threshold import cut",
      "",
      `clients = {"near": ${near}, "noise": ${noise}, "points": ${points}, "size": ${size}}`,
      `found = cut(${threshold}, by="${by}", link="${link}", **clients, draw=${draw})`,
      "print(*found.values())",
      "",
    ].join("\n"),
  task({ threshold }, found) {
    const { window } = found;
    if (window === null)
      return ["No threshold is right here: on every cut somebody stands in a wrong group.", false];
    const wide = window[1] - window[0];
    const where =
      `Right from ${digits(window[0], 1)} to ${digits(window[1], 1)} % of the height, ` +
      `a window of ${digits(wide, 1)} %`;
    if (in_window(found)) {
      if (wide < NARROW) return [`Solved: ${where}, and you stand in it.`, true];
      return [`${where}; you stand in it. Make it narrower than ${NARROW} %.`, false, "right"];
    }
    const above = threshold >= window[1];
    const short = above ? threshold - window[1] : window[0] - threshold;
    const away = `You stand ${digits(short, 1)} % ${above ? "above" : "below"} it`;
    if (wide >= NARROW)
      return [
        `The window is ${digits(wide, 1)} % wide: make it narrower than ${NARROW} %. ${away}.`,
        false,
      ];
    const whole = Math.ceil(window[0]) < window[1];
    const reached = whole
      ? `Narrow enough: the window is ${digits(wide, 1)} % wide. ${away}: stand in it.`
      : `The window is ${digits(wide, 1)} % wide, and no whole percent lies in it. Widen it a little.`;
    return [reached, false, whole ? "narrow" : null];
  },
  build(lab) {
    const square = make_square(1, drawn_tree);
    const chart = make_chart({
      tall: 190,
      caption: "Error of the groups' means against the threshold",
      x: {
        low: 0,
        high: 100,
        ticks: range(5).map((t) => [25 * t, `${25 * t} %`]),
        words: "of the tree's height",
      },
      y: { log: true, ticks: range(6).map((e) => [10 ** (e - 4), `${10 ** (e - 4)}`]) },
    });
    const to = (percent, begins) =>
      lab.change({ threshold: Math.max(0, Math.min(100, Math.round(percent))) }, begins);
    return {
      main: [square.node, chart.node],
      side: ["threshold", "by", "link", "near", "noise", "points", "size", "draw"].map((entry) =>
        lab.control(entry),
      ),
      key: SEEN,
      show({ state, found }) {
        square.show({ state, found }, [
          {
            key: "threshold",
            name: "threshold on the tree",
            at: [across_tree(state.threshold), 0.84],
            look: `${state.threshold > 50}`,
            draw: (x, y) =>
              svg(
                "g",
                {},
                svg("path", { d: `M${x - 9} ${y - 9}h18l-9 16z`, fill: "currentColor" }),
                svg(
                  "text",
                  {
                    x: state.threshold > 50 ? x - 12 : x + 12,
                    y: y + 3,
                    class: "name",
                    "text-anchor": state.threshold > 50 ? "end" : "start",
                  },
                  "threshold",
                ),
              ),
            moved: ([x], begins) => to((100 * (x - LEAVES)) / (ROOT - LEAVES), begins),
            pressed: ([right, up], far) =>
              to(state.threshold + (right + up) * (far ? 10 : 1), true),
            range: [0, 100, state.threshold],
            said: `${state.threshold} percent, ${found.count} groups`,
          },
        ]);
        const { window, curve, alone, error } = found;
        const errors = curve.map(([, one]) => one);
        const [least, most] = [Math.min(...errors), Math.max(...errors)];
        chart.show(
          `Error ${digits(error, 3)} at ${state.threshold} percent, ${digits(alone, 3)} alone.`,
          [
            { points: [[0, alone], [100, alone]], dash: "2 3", name: "alone" },
            { points: curve },
            ...(window
              ? [
                  {
                    points: [
                      [window[0], found.cuts.find(({ right }) => right === 1).error],
                      [Math.min(100, window[1]), found.cuts.find(({ right }) => right === 1).error],
                    ],
                    wide: 6,
                    name: "all right",
                    under: true,
                  },
                ]
              : []),
            {
              at: [state.threshold, error],
              draw: (x, y) => group_mark(0, x, y, 5, { fill: "Canvas", class: "edge" }),
            },
          ],
          { low: 0.4 * least, high: 1.8 * most },
        );
      },
    };
  },
});
