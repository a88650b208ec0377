// FedAvg, federated averaging: one model for everybody (McMahan et al., 2017, Algorithm 1).
// Python: algorithms/fedavg.py

import { known, share, truthful } from "./check.js";
import { first_models, group_means, make_jobs, next_state, participants } from "./contract.js";
import { ALGORITHMS } from "./kinds.js";
import { LocalSGD } from "./solvers.js";

// Each client trains one model, and says the loss it started from.
export function train_from(model, starts, local, jobs, world) {
  const loss = jobs.clients.map((i, row) => model.loss(starts[row], world.clients[i]));
  const bank = jobs.clients.map((i, row) => local.train(model, starts[row], world.clients[i]));
  return { clients: jobs.clients, bank, values: { loss } };
}

export function FedAvg(given) {
  const settings = known("FedAvg", given, {
    model: undefined,
    local: LocalSGD(),
    participation: 1,
    weighted: true,
  });
  const { model, local, participation, weighted } = settings;
  share("participation", participation);
  truthful("weighted", weighted);

  return Object.freeze({
    ...settings,
    name: "FedAvg",

    // One fresh model
    init(world, seed, models = null) {
      const bank = first_models(model, 1, seed, models);
      return Object.freeze({
        seed,
        round: 0,
        bank,
        assignments: world.counts.map(() => 0),
        counts: world.counts,
      });
    },

    // Server: the model goes to a random subset of the clients
    plan(state) {
      return make_jobs(
        state,
        participants([state.seed, state.round], state.counts.length, participation),
      );
    },

    // Clients: train the model on their own data
    client_step(jobs, world) {
      return train_from(
        model,
        jobs.clients.map(() => jobs.bank[0]),
        local,
        jobs,
        world,
      );
    },

    // Server: the mean of the local models, weighted by n_i, is the next model
    absorb(state, replies) {
      const weights = replies.clients.map((i) => (weighted ? state.counts[i] : 1));
      return next_state(state, {
        bank: group_means(
          state.bank,
          replies.bank,
          replies.clients.map(() => 0),
          weights,
        ),
      });
    },
  });
}

ALGORITHMS.FedAvg = FedAvg;
