// FedEM, federated expectation maximisation (Marfoq et al.; 2021, Algorithm 1). Python:
// algorithms/fedem.py
//
// Every client's data is a mixture of k distributions. It trains all k models, and each point
// weighs as much in a model's training as the model explains it.

import { among, known, share, whole } from "./check.js";
import { first_models, group_means, make_jobs, next_state, participants } from "./contract.js";
import { ALGORITHMS } from "./kinds.js";
import { range } from "./random.js";
import { LocalSGD } from "./solvers.js";

// q_j(z), proportional to pi_j exp(-f(theta_j; z)): a row a model, from the losses of each model on
// each point; evidence: log sum_j pi_j exp(-f(theta_j; z)) of each point.
export function responsibilities(losses, weights) {
  const points = range(losses[0].length);
  const joint = losses.map((row, j) => row.map((loss) => Math.log(weights[j]) - loss));
  const evidence = points.map((l) => {
    const top = Math.max(...joint.map((row) => row[l]));
    const total = joint.reduce((sum, row) => sum + Math.exp(row[l] - top), 0);
    return top === -Infinity ? top : top + Math.log(total);
  });
  return { q: joint.map((row) => row.map((one, l) => Math.exp(one - evidence[l]))), evidence };
}

export function FedEM(given) {
  const settings = known("FedEM", given, {
    model: undefined,
    clusters: undefined,
    local: LocalSGD(),
    participation: 1,
  });
  const { model, clusters, local, participation } = settings;
  whole("clusters", clusters, 1, 20);
  share("participation", participation);
  const mean = (row) => row.reduce((sum, one) => sum + one, 0) / row.length;

  return Object.freeze({
    ...settings,
    name: "FedEM",

    // k fresh models, equal mixture weights
    init(world, seed, models = null) {
      const m = world.counts.length;
      among("clusters", clusters, m);
      return Object.freeze({
        seed,
        round: 0,
        bank: first_models(model, clusters, seed, models),
        assignments: range(m).map(() => Array(clusters).fill(1 / clusters)),
        counts: world.counts,
      });
    },

    // Server: all k models go to a random subset of the clients
    plan(state) {
      const ids = participants([state.seed, state.round], state.counts.length, participation);
      const everything = ids.map(() => range(clusters));
      const values = { mixture: ids.map((i) => state.assignments[i]) };
      return make_jobs(state, ids, everything, { values });
    },

    // Clients: E step, mixture weights, then k trainings on weighted losses. The reply holds k
    // models a client.
    client_step(jobs, world) {
      const own = jobs.clients.map((i) => world.clients[i]);
      const found = own.map((client, row) =>
        responsibilities(
          jobs.bank.map((theta) => model.point_losses(theta, client)),
          jobs.values.mixture[row],
        ),
      );
      const bank = own.flatMap((client, row) =>
        jobs.bank.map((theta, j) => local.train(model, theta, client, null, found[row].q[j])),
      );
      const values = {
        loss: found.map(({ evidence }) => -mean(evidence)),
        mixture: found.map(({ q }) => q.map(mean)),
      };
      return { clients: jobs.clients, bank, values };
    },

    // Server: each model becomes the mean of its trained copies, with weights n_i
    absorb(state, replies) {
      const ids = replies.clients.flatMap((i) => Array(clusters).fill(i));
      const bank = group_means(
        state.bank,
        replies.bank,
        ids.map((_, row) => row % clusters),
        ids.map((i) => state.counts[i]),
      );
      const assignments = [...state.assignments];
      replies.clients.forEach((i, row) => {
        assignments[i] = replies.values.mixture[row];
      });
      return next_state(state, { bank, assignments });
    },
  });
}

ALGORITHMS.FedEM = FedEM;
