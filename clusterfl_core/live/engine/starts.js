// Several starts, and which of them to keep without knowing the truth (Python: starts.py).

import { positive, whole } from "./check.js";
import { MOST } from "./linear.js";
import { loss_table } from "./ifca.js";
import { step } from "./loop.js";
import { range, stream } from "./random.js";

// Mean over the clients of the lowest loss among the models.
export function training_loss(model, bank, world) {
  const lows = loss_table(model, bank, world).map((row) => Math.min(...row));
  return lows.reduce((sum, one) => sum + one, 0) / lows.length;
}

// Run from several initialisations, one a seed, and keep the one with the lowest final training
// loss (IFCA, section 6). A run that diverged counts as infinitely bad. `models` says where each
// begins, as in init; default: drawn.
export function restarts(algorithm, world, rounds, seeds, models = () => null) {
  if (!seeds.length) throw new Error("seeds must name at least one seed");
  let kept = null;
  const losses = {};
  for (const seed of seeds) {
    try {
      let state = algorithm.init(world, seed, models(seed));
      for (let round = 0; round < rounds; round++) state = step(algorithm, world, state);
      losses[seed] = training_loss(algorithm.model, state.bank, world);
      if (kept === null || losses[seed] < losses[kept.seed]) kept = state;
    } catch (error) {
      if (!/not finite/.test(error.message)) throw error;
      losses[seed] = Infinity;
    }
  }
  if (kept === null) throw new Error("every start diverged; the step size is probably too large");
  return { best: kept, seed: kept.seed, losses };
}

// First models anywhere in a box: the start number `start` of a seed.
export function scattered(count, features, radius, seed, start = 0) {
  whole("models", count, 1, MOST.clusters);
  whole("features", features, 1, MOST.features);
  positive("radius", radius);
  const source = stream(seed, "scattered", start);
  return range(count).map(() =>
    Float64Array.from({ length: features }, () => radius * (2 * source.uniform() - 1)),
  );
}
