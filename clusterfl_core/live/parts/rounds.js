// Rounds that the engine plays, for a laboratory whose state leads to a description (engine/lab.js).

import { as_python, begin, next_round } from "../engine/lab.js";

const ENDLESS = 1e6; // times the first loss: further rounds only fill the numbers with noughts

// describe(state) → description without rounds. → first, next and python(state, ends) of a laboratory
export function engine_rounds(describe) {
  return {
    first: (state) => begin(describe(state)),
    next(state, run) {
      const next = next_round(describe(state), run);
      const first_loss = run.first_loss ?? next.state.loss;
      if (!(next.state.loss <= ENDLESS * (1 + first_loss)))
        throw new Error(
          `Round ${next.state.round}: the loss grows without end; the step size is probably too large`,
        );
      return { ...next, first_loss };
    },
    python: (state, ends) => as_python({ ...describe(state), rounds: state.rounds }, ends),
  };
}
