// Local training on all points of a client (Python: solvers.py).

import { known, positive, whole } from "./check.js";

// LocalUpdate: tau steps of gradient descent on the client's own loss (IFCA, lines 18 to 21). With
// a pull (strength a, target t) the client minimises F_i(theta) + a / 2 ‖theta‖^2 - <t, theta>. weights:
// factors of its points' losses.
export function LocalSGD(given = {}) {
  const { steps, step_size } = known("LocalSGD", given, { steps: 1, step_size: 0.1 });
  whole("steps", steps, 1, 1000);
  positive("step_size", step_size);
  return Object.freeze({
    name: "LocalSGD",
    steps,
    step_size,
    train(model, start, client, pull = null, weights = null) {
      const theta = Float64Array.from(start);
      for (let step = 0; step < steps; step++) {
        const slope = model.gradient(theta, client, weights);
        for (let a = 0; a < theta.length; a++) {
          const pulled = pull === null ? 0 : pull.strength * theta[a] - pull.target[a];
          theta[a] -= step_size * (slope[a] + pulled);
        }
      }
      return theta;
    },
  });
}
