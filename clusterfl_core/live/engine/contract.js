// What an algorithm is, and what travels between the server and its clients (Python: contract.py).
//
// An algorithm is an object of settings with four functions:
//
// * init(world, seed, models) makes the state before the first round;
// * plan(state) is the server: which clients work now, on which models (jobs);
// * client_step(jobs, world) is the clients: they answer with models and a few numbers (replies);
// * absorb(state, replies) is the server again: it makes the next state.
//
// A round trip is plan, client_step, absorb; the round is over when state.round has grown by one.
// A state is never changed. It holds numbers and arrays only, so it can be kept, sent or printed:
//
//     state    {seed, round, bank: [model, ...], assignments: [which model is each client's], ...}
//     jobs     {seed, round, clients: [ids], bank, models: [[rows of it] a client], kept, values}
//     replies  {clients: [ids], bank: [one model a client] or null, values: {name: [one a client]}}
//
// A model is a row of numbers (Float64Array), all its parameters in Python's order.

import { rows_of, whole } from "./check.js";
import { range, stream } from "./random.js";

// The models with which a run begins: those that were given, or drawn by the model's own rule.
export function first_models(model, count, seed, models = null) {
  whole("seed", seed, 0, 2 ** 32 - 1);
  if (models === null) {
    return range(count).map((j) => model.fresh(stream(seed, "initialization", j)));
  }
  const found = rows_of("models", models, 2 * count + 1, model.size);
  if (found.length !== count) throw new Error(`models must be ${count}, got ${found.length}`);
  return found;
}

export function next_state(state, changes = {}) {
  return Object.freeze({ ...state, ...changes, round: state.round + 1 });
}

// The jobs of the coming round trip; default models: the one assigned to each client.
export function make_jobs(state, clients, models = null, more = {}) {
  const sent = models ?? clients.map((i) => [state.assignments[i]]);
  return {
    seed: state.seed,
    round: state.round,
    clients,
    bank: state.bank,
    models: sent,
    kept: null,
    values: {},
    ...more,
  };
}

// The jobs, or the replies, of some of the clients.
export function take_rows(asked, rows) {
  const some = (list) => (list ? rows.map((row) => list[row]) : list);
  const values = Object.fromEntries(
    Object.entries(asked.values).map(([name, list]) => [name, some(list)]),
  );
  return {
    ...asked,
    clients: some(asked.clients),
    models: some(asked.models),
    kept: some(asked.kept),
    values,
  };
}

// M_t, the random subset of clients that takes part in a round, at least one (IFCA, Algorithm 1,
// line 4).
export function participants([seed, round], clients, participation) {
  const wanted = participation * clients;
  const whole_part = Math.floor(wanted);
  const half = wanted - whole_part; // Python rounds a half to the even number
  const chosen = Math.max(1, half === 0.5 ? whole_part + (whole_part % 2) : Math.round(wanted));
  if (chosen === clients) return range(clients);
  const order = stream(seed, "participation", round).shuffle(range(clients));
  return order.slice(0, chosen).sort((a, b) => a - b);
}

// Sums of the clients' models by group, in the order of the clients, and the sums of their weights.
export function summed(models, groups, count, weights = null) {
  const sums = range(count).map(() => new Float64Array(models[0]?.length ?? 0));
  const totals = new Float64Array(count);
  models.forEach((theta, i) => {
    const weight = weights === null ? 1 : weights[i];
    const sum = sums[groups[i]];
    for (let a = 0; a < sum.length; a++) sum[a] += weight * theta[a];
    totals[groups[i]] += weight;
  });
  return { sums, totals };
}

// The mean in each group; a group without weight keeps its model.
export function group_means(bank, models, groups, weights = null) {
  const { sums, totals } = summed(models, groups, bank.length, weights);
  return bank.map((old, j) => (totals[j] > 0 ? sums[j].map((sum) => sum / totals[j]) : old));
}

export const norm = (row) => Math.sqrt(row.reduce((sum, one) => sum + one * one, 0));
export const minus = (one, other) => one.map((value, a) => value - other[a]);
export const plus = (one, other) => one.map((value, a) => value + other[a]);
