// FedAvg with fine-tuning: federated averaging for some rounds, then every client trains the model
// alone. Python: algorithms/fine_tuned.py

import { known, whole } from "./check.js";
import { make_jobs, next_state } from "./contract.js";
import { FedAvg, train_from } from "./fedavg.js";
import { ALGORITHMS } from "./kinds.js";
import { MOST } from "./linear.js";
import { range } from "./random.js";
import { LocalSGD } from "./solvers.js";

export function FineTuned(given) {
  const settings = known("FineTuned", given, {
    model: undefined,
    local: LocalSGD(),
    participation: 1,
    weighted: true,
    after: undefined,
    tune: LocalSGD(),
  });
  const { after, tune, ...shared } = settings;
  const together = FedAvg(shared);
  whole("after", after, 1, MOST.rounds);

  return Object.freeze({
    ...together,
    ...settings,
    name: "FineTuned",

    // Server: the model to some, then to all; after that nothing is sent
    plan(state) {
      if (state.round < after) return together.plan(state);
      const everybody = range(state.counts.length);
      if (state.round === after) return make_jobs(state, everybody);
      return make_jobs(
        state,
        everybody,
        everybody.map(() => []),
        { kept: state.bank },
      );
    },

    // Clients: train the model they got, or the one they kept, on their own data
    client_step(jobs, world) {
      const starts = jobs.kept ?? jobs.clients.map(() => jobs.bank[0]);
      const solver = jobs.round < after ? settings.local : tune;
      return train_from(settings.model, starts, solver, jobs, world);
    },

    // Server: the mean; once the clients fine-tune, there are m models, which stay with them. Who does
    // not answer keeps the model it had.
    absorb(state, replies) {
      if (state.round < after) return together.absorb(state, replies);
      const everybody = range(state.counts.length);
      const bank = everybody.map((i) => state.bank[state.round === after ? 0 : i]);
      replies.clients.forEach((i, row) => {
        bank[i] = replies.bank[row];
      });
      return next_state(state, { bank, assignments: everybody });
    },
  });
}

ALGORITHMS.FineTuned = FineTuned;
