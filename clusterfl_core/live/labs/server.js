// You are the server: CFL on twelve bowls, with thresholds that are set by hand.

import { laboratory } from "../parts/laboratory.js";
import { make_identities } from "../parts/identities.js";
import { engine_rounds } from "../parts/rounds.js";
import {
  described_splitting,
  judged,
  looked_into,
  make_splitting,
  settled,
  true_groups,
  verdicts,
} from "../parts/splitting.js";

const SEEN =
  "First picture: clients at their own best models (shape: true group; number: the model they follow), models " +
  "(crosses) with their way, lines: updates. Second picture: each group's longest against its mean update, " +
  "round by round (slanted cross: it split), on logarithmic axes; in the shaded corner a group is split, if the cut is wide " +
  "enough. Losses are exact bowls of one shape, without noise; all clients take part. A change of a " +
  "threshold plays all rounds again.";

const rounds = engine_rounds(described_splitting);

function losses_of({ world, state }) {
  return world.clients.map((client, i) =>
    world.model.loss(state.bank[state.assignments[i]], client),
  );
}

laboratory("server", {
  title: "you are the server",
  ...rounds,
  compute(state, path) {
    const run = path.at(-1);
    const losses = losses_of(run);
    return {
      ...looked_into(run),
      ...judged(run.state.assignments, true_groups(state)),
      mean: losses.reduce((sum, one) => sum + one, 0) / losses.length,
      worst: Math.max(...losses),
    };
  },
  rest: (state, _, path) => settled(path) || state.rounds >= TABLE.rounds.high,
  told: (_, { groups, torn, exact }, path) => {
    const many = groups.length === 1 ? "one group" : `${groups.length} groups`;
    const right = exact ? " These are the true groups." : torn ? " A true group is torn." : "";
    return `Round ${path.length - 1}, ${many}: ${verdicts(groups)}.${right}`;
  },
  readings: (_, { groups, mean, worst }) => [
    ["groups", groups.length, 0],
    ["mean loss of the clients", mean, 4],
    ["loss of the worst client", worst, 4],
  ],
  python: (state) =>
    rounds.python(state, [
      "own = run.models.flatten()[run.assignments]",
      "x, y = federation.train.x, federation.train.y",
      "losses = ((y - (x * own[:, None]).sum(2)) ** 2).mean(1)",
      "print(len(run.models), float(losses.mean()), float(losses.max()))",
    ]),
  task(state, { torn, exact }, path, memory) {
    if (torn) memory.torn = true;
    if (!memory.torn && exact)
      return ["The three true groups. Now tear one: raise ε₁.", false];
    if (!memory.torn) return ["No true group is torn yet. Play on, or move the thresholds.", false];
    if (exact && settled(path))
      return ["Solved: torn before, and now the three true groups, for good.", true];
    if (exact) return ["The three true groups. Do they stay? Play on.", false, "torn"];
    const now = "Now find thresholds that end in the three true groups.";
    return [`A true group was torn. ${now}`, false, "torn"];
  },
  build(lab) {
    const { plane, lengths, show } = make_splitting(lab);
    const identities = make_identities("Who follows which model");
    return {
      main: [plane],
      side: [
        lengths,
        lab.control("eps1"),
        lab.control("eps2"),
        lab.control("gamma_max"),
        lab.control("steps"),
        lab.control("stretch"),
      ],
      below: [identities.node],
      key: `${SEEN} Drag clients, start and thresholds, or move them with the arrow keys (Shift: far).`,
      show(now) {
        show(now);
        const { assignments, bank } = now.path.at(-1).state;
        identities.show(assignments, true_groups(now.state), bank.length);
      },
    };
  },
});
