// Deadline: how long does the server wait, and whom does it lose?

import { range, stream } from "../engine/random.js";
import { make_chart } from "../parts/chart.js";
import { digits, svg } from "../parts/dom.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, group_mark } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const [EACH, BUDGET, SHOWN] = [5, 120, 24]; // clients of a group; seconds: of a run, in the picture
const CLIENTS = range(2 * EACH);
const BEST = [
  [-1.4, 0],
  [1.4, 0],
];
const OWN = [
  [0.2, 0.1],
  [-0.25, 0.15],
  [0.1, -0.3],
  [-0.15, -0.1],
  [0.1, 0.15],
];
const OWN_PACE = [1, 0.85, 1.07, 0.93, 1.15];
const STARTS = {
  one: [[0, 1.5]],
  each: [
    [-0.3, 1.5],
    [0.3, 1.5],
  ],
};
const KEPT = 0.9 ** 5; // of the way to its own best model, after five steps of size 0.1
const GOAL = { lost: 2, near: 0.4 };
// Of the time lines, in a square from -1 to 1:
const [BEGIN_AT, END_AT, TOP_ROW, LAST_ROW] = [-0.86, 0.94, 0.74, -0.8];
const SEEN =
  "Top: the first 24 seconds. A row is a client, circles are of group 0 and squares of group 1. A " +
  "full bar is work whose answer counts, and a mark ends it; an empty bar that ends in a cross is " +
  "thrown away; upright lines end the rounds. Below: how far the model that a group has stands " +
  "from its best one. Drag the deadline and the two diamonds, the usual times of quick and slow " +
  "clients. Simplified: losses are bowls of one shape, the wire and a round's fixed price cost " +
  "nothing, and one model a group begins so near its group that every client picks its own.";

const group_of = (i) => Math.floor(i / EACH);
const is_slow = (i, linked) => i % EACH < (group_of(i) ? linked : EACH - linked);
const usual = (i, { quick, slow, linked }) => (is_slow(i, linked) ? slow : quick);
const distance = (one, other) => Math.hypot(one[0] - other[0], one[1] - other[1]);
const bottom = (i) => BEST[group_of(i)].map((value, a) => value + OWN[i % EACH][a]);

const lucks = []; // of each round, a normal number a client
function luck_in(round) {
  lucks[round] ??= CLIENTS.map((i) => stream(0, "luck", round, i).normal());
  return lucks[round];
}

// Two minutes. Each client at work has its start, its end and the model that it will answer with.
function played_through(state) {
  const { deadline, luck, late } = state;
  let models = STARTS[state.models];
  const model_of = (i) => models[Math.min(group_of(i), models.length - 1)];
  const far = () => BEST.map((best, group) => distance(best, model_of(EACH * group)));
  const working = new Map();
  const [bars, ends, path, heard] = [[], [], [[0, far()]], [0, 0]];
  let clock = 0;
  for (let round = 0; ; round++) {
    const chance = luck_in(round);
    for (const i of CLIENTS) {
      if (working.has(i)) continue;
      const seconds = usual(i, state) * OWN_PACE[i % EACH] * Math.exp(luck * chance[i]);
      const c = bottom(i);
      const answer = model_of(i).map((value, a) => c[a] + KEPT * (value - c[a]));
      working.set(i, { from: clock, to: clock + seconds, answer });
    }
    const last = Math.max(...[...working.values()].map(({ to }) => to));
    const end = Math.min(clock + deadline, last);
    const over = end > BUDGET;
    const there = over ? [] : CLIENTS.filter((i) => working.get(i).to <= end);
    const answers = there.map((i) => [i, working.get(i)]);
    for (const [i, { from, to }] of working) {
      if (there.includes(i)) bars.push({ i, from, to, counts: true });
      else if (over || !late) bars.push({ i, from, to: end, counts: over ? null : false });
    }
    if (over) break;
    there.forEach((i) => working.delete(i));
    if (!late) working.clear();
    models = models.map((old, j) => {
      const own = answers.filter(([i]) => models.length === 1 || group_of(i) === j);
      return own.length
        ? old.map((_, a) => own.reduce((sum, [, { answer }]) => sum + answer[a], 0) / own.length)
        : old;
    });
    there.forEach((i) => {
      heard[group_of(i)] += 1;
    });
    clock = end;
    ends.push(end);
    path.push([clock, far()]);
  }
  const rounds = ends.length;
  return {
    bars: bars.filter(({ from }) => from < SHOWN),
    ends,
    path: [...path, [BUDGET, far()]],
    far: far(),
    rounds,
    seconds: clock / rounds,
    heard: heard.map((count) => (100 * count) / (rounds * EACH)),
  };
}

const across = (seconds) => BEGIN_AT + ((END_AT - BEGIN_AT) * seconds) / SHOWN;
const seconds_at = (x) => ((x - BEGIN_AT) / (END_AT - BEGIN_AT)) * SHOWN;
const row_of = (i) => {
  const place = i + 0.5 + (group_of(i) ? 0.4 : 0); // a gap between the groups
  return TOP_ROW - 0.05 - ((TOP_ROW - LAST_ROW - 0.1) * place) / (2 * EACH + 0.4);
};

function drawn_lines({ size, at }, { state, found }) {
  const thick = Math.max(5, size * 0.022);
  const place = (seconds, i) => at([across(seconds), row_of(i)]);
  const bars = found.bars.flatMap(({ i, from, to, counts }) => {
    const [x, y] = place(from, i);
    const [end] = place(Math.min(to, SHOWN), i);
    const colour = colour_of(group_of(i));
    const full = counts === true || (counts === null && to > SHOWN);
    return [
      svg("rect", {
        x: x + 1,
        y: y - thick / 2,
        width: Math.max(0, end - x - 1),
        height: thick,
        fill: full ? colour : "none",
        "fill-opacity": 0.55,
        stroke: colour,
        "stroke-dasharray": full ? "none" : "3 2",
      }),
      ...(to > SHOWN
        ? []
        : [
            counts
              ? group_mark(group_of(i), end, y, thick * 0.75, { fill: colour, class: "edge" })
              : svg("path", {
                  d: `M${end - 4} ${y - 4}l8 8m0 -8l-8 8`,
                  stroke: "currentColor",
                  "stroke-width": 1.6,
                }),
          ]),
    ];
  });
  const tick = (seconds) => {
    const [x, y] = at([across(seconds), LAST_ROW]);
    return svg("text", { x, y: y + 15, "text-anchor": seconds === SHOWN ? "end" : "middle" }, `${seconds} s`);
  };
  const upright = (seconds, more) => {
    const [x, top] = at([across(seconds), TOP_ROW]);
    const [, low] = at([0, LAST_ROW]);
    return svg("path", { d: `M${x} ${top}V${low}`, stroke: "currentColor", ...more });
  };
  const marks = [
    ...found.ends
      .filter((end) => end <= SHOWN)
      .map((end) => upright(end, { "stroke-opacity": 0.55 })),
    ...bars,
    upright(state.deadline, { "stroke-width": 2, "stroke-dasharray": "6 4" }),
    ...CLIENTS.map((i) => {
      const [x, y] = at([-0.95, row_of(i)]);
      const group = group_of(i);
      return group_mark(group, x, y, thick * 0.75, { fill: colour_of(group), class: "edge" });
    }),
    ...[0, 6, 12, 18, 24].map(tick),
  ];
  const label =
    `Time lines of ten clients; a round ends after ${digits(state.deadline)} seconds at the ` +
    `latest. Heard: group 0 ${digits(found.heard[0], 0)} %, group 1 ${digits(found.heard[1], 0)} %.`;
  return { label, marks };
}

const same_clients = (state, other) =>
  ["quick", "slow", "linked", "luck"].every((entry) => state[entry] === other[entry]);

laboratory("deadline", {
  title: "deadline",
  compute: played_through,
  told: ({ linked, deadline }, { far, rounds, heard }) =>
    `${linked} of the 5 slow clients are in group 1. With a deadline of ${digits(deadline)} seconds ` +
    `there are ${rounds} rounds; ${digits(heard[0], 0)} % of group 0's answers count and ` +
    `${digits(heard[1], 0)} % of group 1's. At the end group 0 stands ${digits(far[0])} from its ` +
    `best model, group 1 ${digits(far[1])}.`,
  readings: (_, { far, rounds, seconds, heard }) => [
    ["group 0 from its best model", far[0], 2],
    ["group 1 from its best model", far[1], 2],
    ["rounds in two minutes", rounds, 0],
    ["seconds a round", seconds, 2],
    ["answers heard, group 0", heard[0], 1, " %"],
    ["answers heard, group 1", heard[1], 1, " %"],
  ],
  python: ({ deadline, quick, slow, linked, luck, models, late }) =>
    [
      "from clusterfl_core.live.labs.deadline import played",
      "",
      `clients = {"quick": ${quick}, "slow": ${slow}, "linked": ${linked}, "luck": ${luck}}`,
      `server = {"models": "${models}", "late": ${late ? "True" : "False"}}`,
      `found = played(${deadline}, **clients, **server)`,
      'print(*found["distances"], found["rounds"], found["seconds"], *found["heard"])',
      "",
    ].join("\n"),
  task(state, { far }, _, memory) {
    if (!memory.lost && far[0] <= GOAL.near && far[1] >= GOAL.lost) memory.lost = { ...state };
    const { lost } = memory;
    const now = `Group 0 ends ${digits(far[0])} from its best model, group 1 ${digits(far[1])}`;
    if (!lost)
      return [
        `${now}. Lost is: group 0 at most ${digits(GOAL.near, 1)}, group 1 at least ${GOAL.lost}.`,
        false,
      ];
    const part = "lost";
    const limit = `the deadline at most ${digits(lost.deadline)}`;
    if (!same_clients(state, lost))
      return [
        `Group 1 was lost with other clients: quick ${digits(lost.quick)}, slow ` +
          `${digits(lost.slow)}, ${lost.linked} slow in group 1, luck ${digits(lost.luck)}.`,
        false,
        part,
      ];
    if (state.deadline > lost.deadline)
      return [`Group 1 was lost. ${now}, but keep ${limit}.`, false, part];
    if (far.every((one) => one <= GOAL.near))
      return [`Solved: lost, and won back. ${now}, with ${limit}.`, true];
    return [
      `Group 1 was lost. ${now}; won back is at most ${digits(GOAL.near, 1)} for both, ` +
        `with the same clients and ${limit}.`,
      false,
      part,
    ];
  },
  build(lab) {
    const square = make_square(1, drawn_lines);
    const chart = make_chart({
      tall: 190,
      caption: "Distance of each group's model from its best, over two minutes",
      x: {
        low: 0,
        high: BUDGET,
        ticks: range(5).map((t) => [30 * t, `${30 * t}`]),
        words: "seconds",
      },
      y: { low: 0, high: 3.2, ticks: range(4).map((y) => [y, `${y}`]) },
    });
    const to = (entry, value, begins) => {
      const { low, high, by } = TABLE[entry];
      const stepped = Math.round(value / by) * by;
      lab.change({ [entry]: Math.min(high, Math.max(low, stepped)) }, begins);
    };
    const handle = (state, entry, name, y, mark) => ({
      key: entry,
      name,
      at: [across(state[entry]), y],
      draw: named(mark, entry),
      moved: ([x], begins) => to(entry, seconds_at(x), begins),
      pressed: ([right, up], far) =>
        to(entry, state[entry] + (right + up) * (far ? 4 : 1) * TABLE[entry].by, true),
      range: [TABLE[entry].low, TABLE[entry].high, state[entry]],
      said: `${digits(state[entry], 2)} seconds`,
    });
    // A name on a ground of its own: the ends of rounds pass behind it.
    const named = (mark, text) => (x, y) =>
      svg(
        "g",
        {},
        svg("rect", {
          x: x + 10,
          y: y - 6,
          width: 7.6 * text.length + 6,
          height: 13,
          rx: 3,
          fill: "var(--cfl-under, Canvas)",
          "fill-opacity": 0.9,
        }),
        mark(x, y),
        svg("text", { x: x + 13, y: y + 4, class: "name" }, text),
      );
    const diamond = (x, y) =>
      svg("path", { d: `M${x - 7} ${y}l7 -7l7 7l-7 7z`, fill: "Canvas", class: "edge" });
    const flag = (x, y) =>
      svg("path", { d: `M${x - 8} ${y - 8}h16l-8 14z`, fill: "currentColor" });
    const row_where = (slow, linked) => {
      const i = CLIENTS.find((one) => one % EACH && is_slow(one, linked) === slow);
      return row_of(i ?? CLIENTS.find((one) => is_slow(one, linked) === slow)) + 0.07;
    };
    return {
      main: [square.node, chart.node],
      side: [
        ...["deadline", "quick", "slow", "linked", "luck", "models", "late"].map((entry) =>
          lab.control(entry),
        ),
      ],
      key: SEEN,
      show({ state, found }) {
        const pace = (entry) =>
          handle(
            state,
            entry,
            `usual time of ${entry} clients`,
            row_where(entry === "slow", state.linked),
            diamond,
          );
        square.show({ state, found }, [
          handle(state, "deadline", "deadline on the time line", 0.87, flag),
          pace("quick"),
          pace("slow"),
        ]);
        const close = Math.abs(found.far[0] - found.far[1]) < 0.7;
        const line = (group) => ({
          points: found.path.map(([seconds, far]) => [seconds, far[group]]),
          name: `group ${group}`,
          colour: colour_of(group),
          wide: 2.4,
          dash: group ? "7 3" : "none",
          back: group && close ? Math.floor(found.path.length / 2) : 0,
        });
        chart.show(
          `Distances at the end: group 0 ${digits(found.far[0])}, group 1 ${digits(found.far[1])}.`,
          [line(0), line(1)],
        );
      },
    };
  },
});
