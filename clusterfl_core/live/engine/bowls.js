// Linear clients whose losses are given bowls: what a page lets a reader drag, stretch and turn.

import { known, number, rows_of, whole } from "./check.js";
import { WORLDS } from "./kinds.js";
import { MOST, linear_world } from "./linear.js";

export const BOWLS = "bowls"; // this kind of world
const STEEPEST = 10;

// Client i has the loss (theta - c)'A(theta - c) / 2 with the bottom c = centers[i], and A has the
// curvatures s and 1/s, s = stretch[i], the steep one in the direction turn[i] (degrees). It holds
// pairs[i] times the two points that make this loss; they have no noise.
export function make_bowls(given) {
  const settings = known("the bowls", given, {
    centers: undefined,
    stretch: 1,
    turn: 0,
    pairs: 1,
  });
  const centers = rows_of("centers", settings.centers, MOST.clients, 2);
  const each = (name, check_one) => {
    const values = Array.isArray(settings[name])
      ? settings[name]
      : centers.map(() => settings[name]);
    if (values.length !== centers.length)
      throw new Error(`${name} must be one number or ${centers.length}, got ${values.length}`);
    return values.map(check_one);
  };
  const stretch = each("stretch", (one) => number("stretch", one, `[1, ${STEEPEST}]`));
  const turn = each("turn", (one) => number("turn", one, "[-360, 360]"));
  const pairs = each("pairs", (one) => whole("pairs", one, 1, MOST.points / 2));
  return linear_world(
    centers.map((center, i) => {
      const angle = (turn[i] * Math.PI) / 180;
      const [steep, flat] = [Math.sqrt(stretch[i]), Math.sqrt(1 / stretch[i])];
      const x = [
        [steep * Math.cos(angle), steep * Math.sin(angle)],
        [-flat * Math.sin(angle), flat * Math.cos(angle)],
      ];
      const y = x.map((row) => row[0] * center[0] + row[1] * center[1]);
      const copies = Array.from({ length: pairs[i] });
      return { x: copies.flatMap(() => x), y: copies.flatMap(() => y), cluster: 0 };
    }),
  );
}

// Where FedAvg on linear clients of two numbers comes to rest after `steps` local steps of `step_size`
// a round: the clients' updates -(1 - (1 - eta A_i)^tau)(theta - c_i) sum to zero, each weighted by
// its points. With one step that is the minimum of the mean loss.
export function resting_point(world, bottoms, { steps, step_size }) {
  const left = [0, 0, 0, 0];
  const side = [0, 0];
  world.clients.forEach((client, i) => {
    const rest = [1, 0, 0, 1]; // (1 - eta A)^tau, A = 2 X'X / n
    const one = client.xx.map((value, at) => Number(at % 3 === 0) - 2 * step_size * value);
    for (let step = 0; step < steps; step++) {
      const [a, b, c, d] = rest;
      rest[0] = a * one[0] + b * one[2];
      rest[1] = a * one[1] + b * one[3];
      rest[2] = c * one[0] + d * one[2];
      rest[3] = c * one[1] + d * one[3];
    }
    const pull = rest.map((value, at) => client.n * (Number(at % 3 === 0) - value));
    pull.forEach((value, at) => {
      left[at] += value;
    });
    side[0] += pull[0] * bottoms[i][0] + pull[1] * bottoms[i][1];
    side[1] += pull[2] * bottoms[i][0] + pull[3] * bottoms[i][1];
  });
  const whole_part = left[0] * left[3] - left[1] * left[2];
  return [
    (left[3] * side[0] - left[1] * side[1]) / whole_part,
    (left[0] * side[1] - left[2] * side[0]) / whole_part,
  ];
}

WORLDS[BOWLS] = (settings) => {
  const world = make_bowls(settings);
  return { world, model: world.model };
};
