// EM, expectation maximisation for hidden groups of linear clients: chapter 3, (3.4) to (3.6).
//
// Hard EM gives each client the model with the lowest loss, soft EM a share in each model; then
// each model is fitted to the clients that it explains. The clients send their sums, which is all
// that a weighted least-squares fit needs.

import { among, known, positive, truthful, whole } from "./check.js";
import { first_models, make_jobs, next_state } from "./contract.js";
import { lowest } from "./ifca.js";
import { ALGORITHMS } from "./kinds.js";
import { range } from "./random.js";
import { least_squares } from "./solve.js";

// q_ij = 1 for the model with the lowest loss (3.5), else 0.
export function hard_step(losses) {
  const identity = lowest(losses);
  return losses.map((_, j) => Number(j === identity));
}

// q_ij, proportional to p_j exp(-n F_i(theta_j) / (2 sigma^2)) (3.6).
export function soft_step(losses, shares, points, noise) {
  const fit = losses.map((loss, j) => Math.log(shares[j]) - (points * loss) / (2 * noise ** 2));
  const top = Math.max(...fit);
  const parts = fit.map((one) => Math.exp(one - top));
  const total = parts.reduce((sum, one) => sum + one, 0);
  return parts.map((one) => one / total);
}

export function EM(given) {
  const settings = known("EM", given, {
    model: undefined,
    clusters: undefined,
    soft: false,
    noise: 0.3,
  });
  const { model, clusters, soft, noise } = settings;
  if (model.name !== "LinearRegression") throw new Error("EM fits linear models only");
  whole("clusters", clusters, 1, 20);
  truthful("soft", soft);
  positive("noise", noise);

  return Object.freeze({
    ...settings,
    name: "EM",

    // k models, equal shares p_j
    init(world, seed, models = null) {
      const m = world.counts.length;
      among("clusters", clusters, m);
      const equal = Array(clusters).fill(1 / clusters);
      return Object.freeze({
        seed,
        round: 0,
        bank: first_models(model, clusters, seed, models),
        shares: equal,
        counts: world.counts,
        assignments: range(m).map(() => equal),
      });
    },

    // All models and the shares go to all clients
    plan(state) {
      const ids = range(state.counts.length);
      return make_jobs(
        state,
        ids,
        ids.map(() => range(clusters)),
        { values: { shares: ids.map(() => state.shares) } },
      );
    },

    // E-step. The loss a client reports is its own part of the cost (3.4), sum_j q_ij F_i(theta_j).
    client_step(jobs, world) {
      const own = jobs.clients.map((i) => world.clients[i]);
      const losses = own.map((client) => jobs.bank.map((theta) => model.loss(theta, client)));
      const q = losses.map((row, i) =>
        soft ? soft_step(row, jobs.values.shares[i], own[i].n, noise) : hard_step(row),
      );
      const loss = losses.map((row, i) =>
        row.reduce((sum, one, j) => sum + (q[i][j] > 0 ? q[i][j] * one : 0), 0),
      );
      const sums = own.map(({ n, xx, xy }) => ({
        xx: xx.map((one) => n * one),
        xy: xy.map((one) => n * one),
      }));
      return { clients: jobs.clients, bank: null, values: { q, loss, sums } };
    },

    // M-step: theta_j = argmin sum_i q_ij n_i F_i(theta), p_j = the mean of q_ij. A model that
    // nobody wants stays where it is.
    absorb(state, replies) {
      const { q, sums } = replies.values;
      const bank = state.bank.map((old, j) => {
        if (!(q.reduce((sum, row) => sum + row[j], 0) > 1e-9)) return old;
        const left = new Float64Array(old.length ** 2);
        const side = new Float64Array(old.length);
        sums.forEach(({ xx, xy }, i) => {
          for (let a = 0; a < left.length; a++) left[a] += q[i][j] * xx[a];
          for (let a = 0; a < side.length; a++) side[a] += q[i][j] * xy[a];
        });
        return least_squares(left, side);
      });
      const shares = state.shares.map((_, j) => q.reduce((sum, row) => sum + row[j], 0) / q.length);
      const assignments = [...state.assignments];
      replies.clients.forEach((i, row) => {
        assignments[i] = q[row];
      });
      return next_state(state, { bank, shares, assignments });
    },
  });
}

ALGORITHMS.EM = EM;
