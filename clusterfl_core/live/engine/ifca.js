// IFCA, the iterative federated clustering algorithm (Ghosh, Chung, Yin, Ramchandran; 2020).
// Python: algorithms/ifca.py
//
// The server keeps k models. In a round each client takes the model with the lowest loss on its own
// data as the estimate of its cluster, and the server improves each model with the clients that
// chose it.

import { among, known, one_of, share, whole } from "./check.js";
import { first_models, make_jobs, next_state, participants } from "./contract.js";
import { group_means, summed } from "./contract.js";
import { ALGORITHMS } from "./kinds.js";
import { range } from "./random.js";
import { LocalSGD } from "./solvers.js";

// Index of the lowest loss; the first one where several are equal. NaN is no loss.
export function lowest(losses) {
  let least = 0;
  losses.forEach((loss, j) => {
    const first = Number.isNaN(losses[least]) && !Number.isNaN(loss);
    if (first || loss < losses[least]) least = j;
  });
  return least;
}

// F_i(theta_j) for every client i and every model j.
export function loss_table(model, bank, world) {
  return world.clients.map((client) => bank.map((theta) => model.loss(theta, client)));
}

// argmin_j F_i(theta_j) of each client (Algorithm 1, line 6).
export function estimate_identities(model, bank, world) {
  return loss_table(model, bank, world).map(lowest);
}

export function IFCA(given) {
  const settings = known("IFCA", given, {
    model: undefined,
    clusters: undefined,
    local: LocalSGD(),
    option: "models",
    participation: 1,
  });
  const { model, clusters, local, option, participation } = settings;
  whole("clusters", clusters, 1, 20);
  share("participation", participation);
  one_of("option", option, ["models", "gradients"]);
  if (option === "gradients" && local.steps !== 1) {
    throw new Error(
      `option 'gradients' sends one gradient a round, so local.steps must be 1, got ${local.steps}`,
    );
  }

  return Object.freeze({
    ...settings,
    name: "IFCA",

    // k models, no identities (input of Algorithm 1)
    init(world, seed, models = null) {
      const m = world.counts.length;
      among("clusters", clusters, m);
      const bank = first_models(model, clusters, seed, models);
      return Object.freeze({
        seed,
        round: 0,
        bank,
        assignments: Array(m).fill(-1),
        empty: Array(clusters).fill(0),
        stable: 0,
      });
    },

    // Server: all k models go to a random subset of the clients (lines 3 and 4)
    plan(state) {
      const ids = participants([state.seed, state.round], state.assignments.length, participation);
      return make_jobs(
        state,
        ids,
        ids.map(() => range(clusters)),
      );
    },

    // Clients: choose the best model, then train it or take its gradient (lines 6 to 11)
    client_step(jobs, world) {
      const own = jobs.clients.map((i) => world.clients[i]);
      const losses = own.map((client) => jobs.bank.map((theta) => model.loss(theta, client)));
      const identity = losses.map(lowest); // line 6
      const bank = own.map((client, row) => {
        const theta = jobs.bank[identity[row]];
        return option === "gradients"
          ? model.gradient(theta, client)
          : local.train(model, theta, client);
      });
      return {
        clients: jobs.clients,
        bank,
        values: { identity, loss: losses.map((row, i) => row[identity[i]]) },
      };
    },

    // Server: average within each estimated cluster (lines 13 to 15). Option I divides by m, the
    // number of ALL clients. A cluster that nobody chose keeps its model.
    absorb(state, replies) {
      const { identity } = replies.values;
      const m = state.assignments.length;
      let bank;
      if (option === "gradients") {
        const { sums } = summed(replies.bank, identity, clusters);
        bank = state.bank.map((old, j) =>
          old.map((value, a) => value - (local.step_size / m) * sums[j][a]),
        );
      } else {
        bank = group_means(state.bank, replies.bank, identity);
      }
      const assignments = [...state.assignments];
      replies.clients.forEach((i, row) => {
        assignments[i] = identity[row];
      });
      const changed = assignments.some((j, i) => j !== state.assignments[i]);
      return next_state(state, {
        bank,
        assignments,
        empty: state.empty.map((rounds, j) => (identity.includes(j) ? 0 : rounds + 1)),
        stable: changed ? 0 : state.stable + 1,
      });
    },
  });
}

ALGORITHMS.IFCA = IFCA;
