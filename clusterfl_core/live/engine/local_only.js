// LocalOnly: no client ever hears of another. Python: algorithms/local_only.py

import { known } from "./check.js";
import { first_models, make_jobs, next_state } from "./contract.js";
import { train_from } from "./fedavg.js";
import { ALGORITHMS } from "./kinds.js";
import { range } from "./random.js";
import { LocalSGD } from "./solvers.js";

export function LocalOnly(given) {
  const settings = known("LocalOnly", given, { model: undefined, local: LocalSGD() });
  const { model, local } = settings;

  return Object.freeze({
    ...settings,
    name: "LocalOnly",

    // One fresh model, the same for all, so that the clients differ by their data alone
    init(world, seed, models = null) {
      const [one] = first_models(model, 1, seed, models);
      const everybody = range(world.counts.length);
      return Object.freeze({
        seed,
        round: 0,
        bank: everybody.map(() => one),
        assignments: everybody,
      });
    },

    // Everybody works on the model it kept; the server sends nothing
    plan(state) {
      return make_jobs(
        state,
        state.assignments,
        state.bank.map(() => []),
        { kept: state.bank },
      );
    },

    client_step(jobs, world) {
      return train_from(model, jobs.kept, local, jobs, world);
    },

    // Nothing is averaged: each model is replaced by its trained self
    absorb(state, replies) {
      const bank = [...state.bank];
      replies.clients.forEach((i, row) => {
        bank[i] = replies.bank[row];
      });
      return next_state(state, { bank });
    },
  });
}

ALGORITHMS.LocalOnly = LocalOnly;
