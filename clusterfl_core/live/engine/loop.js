// One round of any algorithm (Python: simulation.py).

import { range } from "./random.js";
import { take_rows } from "./contract.js";

// The next state: round trips until the state says that the round is over. `absent` names clients
// that do not answer in this round. The state given stays as it is, whatever happens.
//
// Beside the algorithm's own fields the state then says: worked, the clients that answered; losses,
// the loss each of them began with; loss, their mean.
export function step(algorithm, world, state, { absent = [] } = {}) {
  let next = state;
  let replies;
  do {
    const jobs = algorithm.plan(next);
    const rows = range(jobs.clients.length).filter((row) => !absent.includes(jobs.clients[row]));
    if (!rows.length) throw new Error(`round ${state.round + 1}: no client answers`);
    replies = algorithm.client_step(take_rows(jobs, rows), world);
    next = algorithm.absorb(next, replies);
  } while (next.round === state.round);
  const losses = replies.values.loss;
  const strange = losses.findIndex((loss) => !Number.isFinite(loss));
  const step_size = algorithm.local?.step_size;
  const why = step_size === undefined ? "" : `; the step size ${step_size} is probably too large`;
  if (strange >= 0) {
    throw new Error(
      `round ${next.round}: the loss of client ${replies.clients[strange]} is not finite${why}`,
    );
  }
  if (!next.bank.every((theta) => theta.every(Number.isFinite))) {
    throw new Error(`round ${next.round}: a model is not finite${why}`);
  }
  const loss = losses.reduce((sum, one) => sum + one, 0) / losses.length;
  return Object.freeze({ ...next, worked: replies.clients, losses, loss });
}
