// FedSoft, soft clustered federated learning (Ruan and Joe-Wong; 2022). Python:
// algorithms/fedsoft.py
//
// The data of each client is a mixture of k distributions. The server keeps k centers c_j, client i
// a personal model w_i; u_ij is the share of cluster j in the data of client i, its importance.

import { among, known, number, truthful, whole } from "./check.js";
import { first_models, make_jobs, next_state } from "./contract.js";
import { lowest } from "./ifca.js";
import { ALGORITHMS } from "./kinds.js";
import { range, stream } from "./random.js";
import { LocalSGD } from "./solvers.js";

// Which center each point of a client votes for: the one with the lowest loss on it.
export function votes(model, bank, client) {
  const table = bank.map((center) => model.point_losses(center, client));
  return range(client.n).map((l) => lowest(table.map((losses) => losses[l])));
}

// u_ij = max(n_ij / n_i, sigma), n_ij the points of client i that vote for center j (Algorithm 1,
// lines 5 to 10).
export function estimate_importance(model, bank, client, smoother) {
  const counts = bank.map(() => 0);
  votes(model, bank, client).forEach((j) => {
    counts[j] += 1;
  });
  return counts.map((count) => Math.max(count / client.n, smoother));
}

// v_ji = u_ij n_i / sum_i' u_i'j n_i', a row a center (line 15, eq. 6); a row of zeros where no
// client gives the center any importance.
export function aggregation_weights(importance, counts) {
  return importance[0].map((_, j) => {
    const weights = importance.map((row, i) => row[j] * counts[i]);
    const total = weights.reduce((sum, one) => sum + one, 0);
    return weights.map((one) => (total > 0 ? one / total : 0));
  });
}

// K clients for each center, one after another, with probability proportional to their weight among
// those not yet drawn (line 16): 1 where a client is selected, else 0.
export function select(weights, size, [seed, round]) {
  return weights.map((row, j) => {
    const source = stream(seed, "selection", round, j);
    const left = [...row];
    const chosen = row.map(() => 0);
    if (left.filter((weight) => weight > 0).length < size) {
      throw new Error(
        `selected must be at most the number of clients with positive importance, got ${size}`,
      );
    }
    for (let drawn = 0; drawn < size; drawn++) {
      const at = source.uniform() * left.reduce((sum, one) => sum + one, 0);
      let reached = 0;
      let last = 0;
      for (let i = 0; i < left.length && reached <= at; i++) {
        reached += left[i];
        if (left[i] > 0) last = i;
      }
      chosen[last] = 1;
      left[last] = 0;
    }
    return chosen;
  });
}

// sum_j weights_j c_j
export function blend(bank, weights) {
  return bank[0].map((_, a) => bank.reduce((sum, center, j) => sum + weights[j] * center[a], 0));
}

// The gradient of (lambda / 2) sum_j u_ij ‖w - c_j‖^2 is a w - t, with a = lambda sum_j u_ij and
// t = lambda sum_j u_ij c_j (eq. 5).
export function proximal_pull(bank, importance, proximal) {
  const weights = importance.map((one) => proximal * one);
  return { strength: weights.reduce((sum, one) => sum + one, 0), target: blend(bank, weights) };
}

export function FedSoft(given) {
  const settings = known("FedSoft", given, {
    model: undefined,
    clusters: undefined,
    local: LocalSGD(),
    proximal: 1,
    selected: null,
    interval: 2,
    smoother: 1e-4,
    warm_start: true,
  });
  const { model, clusters, local, proximal, selected, interval, smoother, warm_start } = settings;
  whole("clusters", clusters, 1, 20);
  number("proximal", proximal, "[0, inf)", "not be negative");
  if (selected !== null) whole("selected", selected);
  whole("interval", interval);
  number("smoother", smoother, "[0, 1)");
  truthful("warm_start", warm_start);
  if (selected !== null && smoother === 0) {
    throw new Error(
      "smoother must be positive where clients are selected, got 0: a cluster that no point has chosen would have nobody to select",
    );
  }

  // The next round trip weighs once in each round with t mod tau = 0 (line 3).
  const must_weigh = (state) => state.round % interval === 0 && state.weighed !== state.round;

  // What each client's model counts for each center, before normalisation: v_ji if everyone takes
  // part; 1 for the selected clients and 0 for the others otherwise (line 18).
  function shares(state) {
    const weights = aggregation_weights(state.assignments, state.counts);
    return selected === null ? weights : select(weights, selected, [state.seed, state.round]);
  }

  return Object.freeze({
    ...settings,
    name: "FedSoft",
    shares,

    // k centers, and one more model with which every client begins; of k models that are given the
    // first serves
    init(world, seed, models = null) {
      const m = world.counts.length;
      among("clusters", clusters, m);
      among("selected", selected, m);
      const told = models !== null && models.length === clusters ? [...models, models[0]] : models;
      const fresh = first_models(model, clusters + 1, seed, told);
      return Object.freeze({
        seed,
        round: 0,
        bank: fresh.slice(0, clusters),
        counts: world.counts,
        assignments: range(m).map(() => Array(clusters).fill(1 / clusters)),
        personal: range(m).map(() => fresh[clusters]),
        empty: Array(clusters).fill(0),
        weighed: -1,
      });
    },

    // Server: all clients weigh (line 4), or the selected ones train (lines 15 to 17)
    plan(state) {
      let ids = range(state.counts.length);
      const everything = ids.map(() => range(clusters));
      if (must_weigh(state)) return make_jobs(state, ids, everything);
      const counted = shares(state);
      ids = ids.filter((i) => counted.some((row) => row[i] > 0));
      return make_jobs(state, ids, everything.slice(0, ids.length), {
        kept: warm_start ? ids.map((i) => state.personal[i]) : null,
        values: { importance: ids.map((i) => state.assignments[i]) },
      });
    },

    // Clients: weigh (lines 5 to 10), or minimise h_i (line 17, eq. 4)
    client_step(jobs, world) {
      const own = jobs.clients.map((i) => world.clients[i]);
      if (!jobs.values.importance) {
        const importance = own.map((client) =>
          estimate_importance(model, jobs.bank, client, smoother),
        );
        return { clients: jobs.clients, bank: null, values: { importance } };
      }
      const starts =
        jobs.kept ??
        jobs.values.importance.map((row) => {
          const total = row.reduce((sum, one) => sum + one, 0);
          return blend(
            jobs.bank,
            row.map((one) => one / total),
          );
        });
      const loss = own.map((client, row) => model.loss(starts[row], client));
      const bank = own.map((client, row) => {
        const pull = proximal_pull(jobs.bank, jobs.values.importance[row], proximal);
        return local.train(model, starts[row], client, pull);
      });
      return { clients: jobs.clients, bank, values: { loss } };
    },

    // Server: note the importance, or average the local models (line 18). A center without any
    // share keeps its model.
    absorb(state, replies) {
      if (replies.bank === null) {
        const assignments = [...state.assignments];
        replies.clients.forEach((i, row) => {
          assignments[i] = replies.values.importance[row];
        });
        return Object.freeze({ ...state, assignments, weighed: state.round });
      }
      const bank = shares(state).map((counted, j) => {
        const own = replies.clients.map((i) => counted[i]);
        const total = own.reduce((sum, one) => sum + one, 0);
        return total > 0
          ? blend(
              replies.bank,
              own.map((one) => one / total),
            )
          : state.bank[j];
      });
      const personal = [...state.personal];
      replies.clients.forEach((i, row) => {
        personal[i] = replies.bank[row];
      });
      const empty = state.empty.map((rounds, j) =>
        state.assignments.some((row) => row[j] > smoother) ? 0 : rounds + 1,
      );
      return next_state(state, { bank, personal, empty });
    },
  });
}

ALGORITHMS.FedSoft = FedSoft;
