// Seven methods on one patchwork: a round of each, how well it reads, what it moved.

import { CFL } from "./cfl.js";
import { FedAvg } from "./fedavg.js";
import { FedEM } from "./fedem.js";
import { FedSoft } from "./fedsoft.js";
import { IFCA } from "./ifca.js";
import { begin } from "./lab.js";
import { LocalOnly } from "./local_only.js";
import { step } from "./loop.js";
import { OneShot } from "./one_shot.js";
import { patchwork_settings } from "./patchwork.js";
import { range } from "./random.js";

export const RIVALS = [FedAvg, LocalOnly, OneShot, IFCA, CFL, FedSoft, FedEM].map(
  ({ name }) => name,
);
export const ALONE = 60; // steps of one-shot clustering's local models in its first round
export const PULL = 0.1; // FedSoft's lambda
const KINDS_OF_DIGIT = 10;

// The description of each method's run, from the settings of the world and of the methods.
export function rivals_of({ k, steps, step_size, participation, eps1, eps2, seed, ...world }) {
  const local = { steps, step_size };
  const own = {
    FedAvg: { local, participation },
    LocalOnly: { local },
    OneShot: { clusters: k, alone: { steps: ALONE, step_size }, local, participation },
    IFCA: { clusters: k, local, participation },
    CFL: { eps1, eps2, local },
    FedSoft: { clusters: k, local, proximal: PULL },
    FedEM: { clusters: k, local, participation },
  };
  const kind = { kind: "patchwork", ...patchwork_settings(world) };
  const whole_run = (name) => ({ world: kind, algorithm: { name, ...own[name] }, seed });
  return Object.fromEntries(RIVALS.map((name) => [name, whole_run(name)]));
}

// The algorithm, counting the models that travel to the clients and back.
function counted(algorithm, counts) {
  return {
    ...algorithm,
    client_step(jobs, world) {
      const replies = algorithm.client_step(jobs, world);
      const down = jobs.models.reduce((sum, rows) => sum + rows.length, 0);
      if (down) counts.moved += down + (replies.bank?.length ?? 0);
      return replies;
    },
  };
}

// The class with the highest probability, of each point.
function named(table) {
  return Uint8Array.from(range(table.length / KINDS_OF_DIGIT), (l) => {
    const row = table.subarray(l * KINDS_OF_DIGIT, (l + 1) * KINDS_OF_DIGIT);
    return row.indexOf(Math.max(...row));
  });
}

// How much of its own mix of digits each honest client reads, on test images that its group sees.
export function qualities({ world, state }) {
  const { model, test, weights, clusters } = world;
  const made = new Map();
  const kept = (name, make) => {
    if (!made.has(name)) made.set(name, make());
    return made.get(name);
  };
  const table = (row, group) =>
    kept(`${row} ${group}`, () => model.probabilities(state.bank[row], test[group].x));
  const read = (i, group) => {
    const row = state.assignments[i];
    if (state.personal) return named(model.probabilities(state.personal[i], test[group].x));
    if (!Array.isArray(row)) return kept(`${row} ${group} read`, () => named(table(row, group)));
    const mixed = table(0, group).map((_, at) =>
      row.reduce((sum, part, j) => sum + part * table(j, group)[at], 0),
    );
    return named(mixed);
  };
  return range(clusters.length)
    .filter((i) => clusters[i] < test.length)
    .map((i) => {
      const group = clusters[i];
      if (state.assignments[i] === -1) return 0; // not yet asked: it has no model
      const answers = read(i, group);
      return weights[i].reduce(
        (sum, weight, l) => sum + (answers[l] === test[group].y[l] ? weight : 0),
        0,
      );
    });
}

// All seven before the first round.
export function begin_rivals(settings, images) {
  return Object.fromEntries(
    Object.entries(rivals_of(settings)).map(([name, description]) => {
      const counts = { moved: 0 };
      try {
        const { world, algorithm, state } = begin(description, images);
        return [name, { world, algorithm: counted(algorithm, counts), state, counts }];
      } catch (error) {
        return [name, { failed: error.message }];
      }
    }),
  );
}

// One round of a method, and what the page shows of it; a method that cannot go on says why.
export function next_of_rival(run) {
  if (run.failed) return { run, shown: { failed: run.failed } };
  let state;
  try {
    state = step(run.algorithm, run.world, run.state);
  } catch (error) {
    return { run: { failed: error.message }, shown: { failed: error.message } };
  }
  const next = { ...run, state };
  const each = qualities(next);
  const { clusters, test } = run.world;
  const alone = run.algorithm.name === "LocalOnly";
  const first_of = range(test.length).map((group) => clusters.indexOf(group));
  const shown = {
    each,
    mean: each.reduce((sum, one) => sum + one, 0) / each.length,
    worst: Math.min(...each),
    moved: run.counts.moved,
    // the model that counts most for each client
    chosen: state.assignments.map((one) =>
      Array.isArray(one) ? one.indexOf(Math.max(...one)) : one,
    ),
    models: (alone ? first_of : range(state.bank.length)).map((row) =>
      Float32Array.from(state.bank[row]),
    ),
  };
  return { run: next, shown };
}
