// The attacker's arrow: CFL on twelve bowls, and one client that sends what the reader likes.

import { begin } from "../engine/lab.js";
import { norm } from "../engine/contract.js";
import { digits, kept_number, svg } from "../parts/dom.js";
import { make_identities } from "../parts/identities.js";
import { laboratory } from "../parts/laboratory.js";
import {
  described_splitting,
  judged,
  looked_into,
  make_splitting,
  true_groups,
  unsplit,
  verdicts,
} from "../parts/splitting.js";

const LIAR = 11; // the last client
const LONG = 30; // rounds without a split that are a veto
const FRAME = 2.38; // of the picture's 2.5: the arrow of the lie is drawn within
const SEEN =
  "First picture: clients at their own best models (shape: true group; number: the model they follow), " +
  "models with their way, lines: what is sent; thick and dashed: what the liar sends; dotted, with a diamond: its arrow before it turns or is clipped. " +
  "An arrow that would leave the picture is drawn whole beside its model. Second picture: " +
  "each group's longest against its mean update, round by round (slanted cross: it split); in the " +
  "shaded corner a group is split. Clipping shortens every update to the median length of its group. " +
  "Losses are exact bowls of one shape, without noise; the liar's lie does not look at the others.";

const median_length = (rows) => {
  const lengths = rows.map(norm).sort((one, other) => one - other);
  return lengths[(lengths.length - 1) >> 1];
};

// What the liar sends in a round.
function lie_in({ lie, arrow }, updates, round) {
  const [x, y] = arrow[0];
  const turned = [
    [x, y],
    [-y, x],
    [-x, -y],
    [y, -x],
  ][round % 4];
  const lies = {
    honest: updates[LIAR],
    arrow: [x, y],
    spin: turned,
    flip: updates[LIAR].map((value) => -value),
  };
  return Float64Array.from(lies[lie]);
}

// What arrives at the server in a round: the lie among the others, and all clipped, if that is wanted.
function altered(state, updates, { round, assignments }) {
  const sent = updates.map((update, i) =>
    i === LIAR ? lie_in(state, updates, round) : Float64Array.from(update),
  );
  if (!state.clip) return sent;
  return sent.map((update, i) => {
    const most = median_length(sent.filter((_, j) => assignments[j] === assignments[i]));
    const length = norm(update);
    return length > most ? update.map((value) => (value * most) / length) : update;
  });
}

const PYTHON_LIES = {
  honest: [],
  arrow: (arrow) => [`    rows[${LIAR}] = torch.tensor([${arrow}])  # the lie`],
  spin: ([x, y]) => [
    `    x, y = ${x}, ${y}  # the lie, turned by a right angle each round`,
    `    rows[${LIAR}] = torch.tensor([(x, y), (-y, x), (-x, -y), (y, -x)][t % 4])`,
  ],
  flip: () => [`    rows[${LIAR}] *= -1  # the lie`],
};

function python_of({ lie, arrow, clip, rounds, ...state }) {
  const { centers, stretch, turn } = described_splitting(state).world;
  const { eps1, eps2, gamma_max, steps, step_size, start } = state;
  const row = (one) => `[${one.join(", ")}]`;
  const rows = (list) => `[${list.map(row).join(", ")}]`;
  const cut = [
    "    for j in state.assignments.unique():  # clipped to the median of each group",
    "        own = state.assignments == j",
    "        lengths = rows[own].norm(dim=1)",
    "        rows[own] *= (lengths.median() / lengths).clamp(max=1)[:, None]",
  ];
  return [
    "from dataclasses import replace",
    "",
    "import clusterfl_core as cf",
    "import torch",
    "from clusterfl_core.live import replay",
    "",
    `federation = replay.bowls(${rows(centers)}, stretch=${stretch}, turn=${turn})`,
    `cfl = cf.CFL(cf.models.LinearRegression(2), ${eps1}, ${eps2}, ${gamma_max}, cf.LocalSGD(${steps}, ${step_size}))`,
    `cfl = replay.replayed(cfl, models=${rows(start)})`,
    "state = cfl.init(federation, 0)",
    "",
    "",
    "def sent(state, t):  # to the server",
    "    replies = cfl.client_step(cfl.plan(state), federation.train)",
    "    rows = replies.bank.flatten()",
    ...(lie === "honest" ? [] : PYTHON_LIES[lie](arrow[0])),
    `    lie = float(rows[${LIAR}].norm())`,
    ...(clip ? cut : []),
    "    return replace(replies, bank=replies.bank.unflatten(rows)), lie",
    "",
    "",
    `for t in range(${Math.max(1, rounds)}):`,
    "    state = cfl.absorb(state, [sent(state, t)[0]])",
    "replies, lie = sent(state, state.round)",
    `print(lie, float(replies.bank.flatten()[${LIAR}].norm()))`,
    "own = state.bank.flatten()[state.assignments]",
    "x, y = federation.train.x, federation.train.y",
    `losses = ((y - (x * own[:, None]).sum(2)) ** 2).mean(1)[:${LIAR}]  # of the honest`,
    "print(len(state.bank), float(losses.mean()), float(losses.max()))",
    "",
  ].join("\n");
}

// Where the arrow begins in the picture: at its model, or as near to it as shows all of the arrow.
const foot_of = (theta, arrow) =>
  [...theta].map((value, a) => {
    const [least, most] = [-FRAME - Math.min(0, arrow[a]), FRAME - Math.max(0, arrow[a])];
    return Math.max(least, Math.min(most, value));
  });

const length_of_mean = (rows) =>
  norm([0, 1].map((a) => rows.reduce((sum, row) => sum + row[a], 0) / rows.length));

laboratory("attack", {
  title: "the attacker's arrow",
  first: (state) => begin(described_splitting(state)),
  next(state, { world, algorithm, state: before }) {
    const replies = algorithm.client_step(algorithm.plan(before), world);
    const bank = altered(state, replies.bank, before);
    return { world, algorithm, state: algorithm.absorb(before, { ...replies, bank }) };
  },
  compute(state, path) {
    const run = path.at(-1);
    const { assignments, bank } = run.state;
    let lie = null;
    const looked = looked_into(run, (updates, now) => {
      lie = norm(lie_in(state, updates, now.round));
      return altered(state, updates, now);
    });
    const losses = run.world.clients
      .slice(0, LIAR)
      .map((client, i) => run.world.model.loss(bank[assignments[i]], client));
    return {
      ...looked,
      ...judged(assignments.slice(0, LIAR), true_groups(state).slice(0, LIAR)),
      beside: assignments.filter((row, i) => i !== LIAR && row === assignments[LIAR]).length,
      lie,
      heard: norm(looked.updates[LIAR]), // as long as the server lets it be
      without: length_of_mean(looked.updates.slice(0, LIAR)),
      mean: losses.reduce((sum, one) => sum + one, 0) / LIAR,
      worst: Math.max(...losses),
    };
  },
  rest: (state, _, path) =>
    (path.length > LONG && unsplit(path)) || state.rounds >= TABLE.rounds.high,
  told({ lie }, { groups, torn, exact, beside, ...sent }, path) {
    const many = groups.length === 1 ? "one group" : `${groups.length} groups`;
    const right = exact
      ? " The honest clients are in their true groups."
      : torn
        ? " An honest group is torn."
        : "";
    const who = lie === "honest" ? "Client 11" : "The liar";
    const company = beside === 1 ? "1 other client" : `${beside} other clients`;
    const where = beside ? `is with ${company}` : "is alone";
    const clipped = sent.heard < sent.lie ? `, clipped to ${digits(sent.heard)}` : "";
    return (
      `Round ${path.length - 1}, ${many}: ${verdicts(groups)}.${right} ${who} ${where} and sends an ` +
      `arrow ${digits(sent.lie)} long${clipped}.`
    );
  },
  readings: (_, { groups, mean, worst, lie, heard }) => [
    ["length that client 11 sends", lie, 3],
    ["length that the server takes", heard, 3],
    ["groups", groups.length, 0],
    ["mean loss of the honest", mean, 4],
    ["loss of the worst honest", worst, 4],
  ],
  python: python_of,
  task({ lie, clip, eps1, eps2 }, { groups, exact, without }, path, memory) {
    const [one] = groups;
    const blocked = groups.length === 1 && one.longest > eps2 && one.mean >= eps1 && without < eps1;
    if (lie !== "honest" && !clip && path.length > LONG && blocked) memory.veto = true;
    if (!memory.veto && clip)
      return ["No veto yet. Take the clip away until the lie has stopped every split.", false];
    if (!memory.veto && lie === "honest") return ["No veto yet: client 11 does not lie.", false];
    if (!memory.veto && groups.length > 1)
      return ["No veto: the group was split. Try another lie, or another length.", false];
    if (!memory.veto)
      return blocked
        ? [`Only the liar keeps the mean long. Does it last for ${LONG} rounds? Play on.`, false]
        : without >= eps1
          ? ["No veto yet: without the liar the mean would be long too. Play on.", false]
          : ["No veto yet: this lie does not keep the mean long.", false];
    const part = "veto";
    if (!clip) return ["A veto: one client, and nobody is ever split. Now clip.", false, part];
    if (lie === "honest")
      return ["An honest client needs no clipping. Let it lie again.", false, part];
    if (exact && unsplit(path))
      return ["Solved: clipped, the same lie stops nothing; all honest clients are at home.", true];
    return ["Clipped. Do the honest clients find their groups? Play on.", false, part];
  },
  build(lab) {
    let beside = null; // where the arrow begins if not at its model: in one round it stays where it is
    let held = false; // and while it is dragged
    let length = 0; // of the path that is drawn
    const foot = ({ state, path }) => {
      if (state.lie === "honest" || state.lie === "flip") return null;
      const [now, arrow] = [path.at(-1).state, state.arrow[0]];
      const theta = now.bank[now.assignments[LIAR]];
      const same = path.length === length;
      length = path.length;
      if (held) return beside;
      const near = foot_of(theta, arrow);
      const fits = beside?.every((value, a) => Math.abs(value + arrow[a]) <= FRAME);
      if (near.every((value, a) => value === theta[a])) beside = null;
      else if (!fits || !same) beside = near;
      return beside ?? near;
    };
    const liar_handle = (shown) => {
      const begin_at = foot(shown);
      if (begin_at === null) return [];
      const arrow = shown.state.arrow[0];
      const tip = arrow.map((value, a) => value + begin_at[a]);
      const words = `lie, ${digits(norm(arrow))} long`;
      const at_left = tip[0] > 0; // where there is room for the words
      return [
        {
          key: "lie",
          name: "tip of the lie",
          at: tip,
          look: `${words} ${at_left}`,
          draw: (x, y) =>
            svg(
              "g",
              {},
              svg("path", { class: "star", d: `M${x} ${y - 8}l8 8l-8 8l-8 -8z` }),
              svg(
                "text",
                {
                  x: at_left ? x - 12 : x + 12,
                  y: y + 4,
                  class: "name",
                  "text-anchor": at_left ? "end" : "start",
                },
                words,
              ),
            ),
          moved: (at, begins) => {
            [held, beside] = [true, begin_at];
            const drawn_tip = at.map((value) => Math.max(-FRAME, Math.min(FRAME, value)));
            const to = drawn_tip.map((value, a) => Math.max(-2.5, Math.min(2.5, value - begin_at[a])));
            lab.change({ arrow: [to.map(kept_number)] }, begins);
          },
          said:
            `the lie goes ${digits(arrow[0], 2)} across, ${digits(arrow[1], 2)} up, ` +
            `and is ${digits(norm(arrow), 2)} long`,
          pressed: ([right, up], far) => {
            const by = far ? 0.5 : 0.1;
            const limited = (value) => Math.max(-2.5, Math.min(2.5, Math.round(value * 100) / 100));
            lab.change({ arrow: [[limited(arrow[0] + by * right), limited(arrow[1] + by * up)]] });
          },
        },
      ];
    };
    const { plane, lengths, show } = make_splitting(lab, { more: liar_handle, liar: LIAR, foot });
    const identities = make_identities("Who follows which model");
    const show_all = (now) => {
      show(now);
      const { assignments, bank } = now.path.at(-1).state;
      identities.show(assignments, true_groups(now.state), bank.length);
    };
    plane.addEventListener("lostpointercapture", () => {
      if (!held) return;
      held = false;
      show_all(lab.keeping);
    });
    return {
      main: [plane],
      side: [
        lab.control("lie"),
        lab.control("clip"),
        lengths,
        lab.control("eps1"),
        lab.control("eps2"),
        lab.control("gamma_max"),
      ],
      below: [identities.node],
      key: `${SEEN} Drag the tip of the lie, clients, start and thresholds, or move them with the arrow keys (Shift: far).`,
      show: show_all,
    };
  },
});
