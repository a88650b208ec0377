// Linear clients: y = <x, theta> + noise, each client a member of a hidden cluster or a mixture.

import { known, number, one_of, rows_of, shown, whole } from "./check.js";
import { WORLDS } from "./kinds.js";
import { range, stream } from "./random.js";
import { best_matching, least_squares } from "./solve.js";

// What a page can bear.
export const MOST = {
  clients: 2000,
  points: 1000,
  features: 100,
  clusters: 20,
  numbers: 2e6,
  rounds: 10000,
};

// y = <x, theta> with squared loss, without a factor 1/2 and without an intercept. What needs no
// single points is computed from a client's sums (means over its n points): X'X, X'y and y'y.
export function LinearRegression(features) {
  whole("features", features, 1, MOST.features);
  return Object.freeze({
    name: "LinearRegression",
    features,
    size: features,

    // F_i(theta), the mean of (y - <x, theta>)^2
    loss(theta, client) {
      let total = client.yy;
      for (let a = 0; a < features; a++) {
        let row = -2 * client.xy[a];
        for (let b = 0; b < features; b++) row += client.xx[a * features + b] * theta[b];
        total += theta[a] * row;
      }
      return Math.max(0, total);
    },

    // (y - <x, theta>)^2 of each point
    point_losses(theta, client) {
      const losses = new Float64Array(client.n);
      for (let l = 0; l < client.n; l++) {
        let missed = client.y[l];
        for (let a = 0; a < features; a++) missed -= client.x[l * features + a] * theta[a];
        losses[l] = missed * missed;
      }
      return losses;
    },

    // 2 (X'X theta - X'y) / n; weights: factors of the points' losses
    gradient(theta, client, weights = null) {
      const slope = new Float64Array(features);
      if (weights !== null) {
        for (let l = 0; l < client.n; l++) {
          let missed = client.y[l];
          for (let a = 0; a < features; a++) missed -= client.x[l * features + a] * theta[a];
          const factor = (-2 * weights[l] * missed) / client.n;
          for (let a = 0; a < features; a++) slope[a] += factor * client.x[l * features + a];
        }
        return slope;
      }
      for (let a = 0; a < features; a++) {
        let row = -client.xy[a];
        for (let b = 0; b < features; b++) row += client.xx[a * features + b] * theta[b];
        slope[a] = 2 * row;
      }
      return slope;
    },

    // Each coordinate 0 or 1 (IFCA, section 6.1)
    fresh(source) {
      return Float64Array.from({ length: features }, () => source.integer(2));
    },
  });
}

// A client from its points: x [n][d], y [n].
function linear_client(x, y, cluster, d) {
  const n = y.length;
  const client = {
    n,
    cluster,
    x: new Float64Array(n * d),
    y: Float64Array.from(y),
    xx: new Float64Array(d * d),
    xy: new Float64Array(d),
    yy: 0,
  };
  for (let l = 0; l < n; l++) {
    client.x.set(x[l], l * d);
    for (let a = 0; a < d; a++) {
      for (let b = 0; b < d; b++) client.xx[a * d + b] += x[l][a] * x[l][b];
      client.xy[a] += x[l][a] * y[l];
    }
    client.yy += y[l] * y[l];
  }
  for (let i = 0; i < d * d; i++) client.xx[i] /= n;
  for (let a = 0; a < d; a++) client.xy[a] /= n;
  client.yy /= n;
  return client;
}

function linear_federation(clients, d, truth) {
  return Object.freeze({
    kind: "linear",
    model: LinearRegression(d),
    clients,
    counts: clients.map((client) => client.n),
    clusters: clients.map((client) => client.cluster),
    truth,
  });
}

// A world of points that somebody else made.
export function linear_world(clients) {
  if (!Array.isArray(clients) || !clients.length || clients.length > MOST.clients) {
    throw new Error(
      `clients must be a list of 1 to ${MOST.clients}, got ${shown(clients?.length ?? clients)}`,
    );
  }
  const d = clients[0]?.x?.[0]?.length ?? 0;
  const held = clients.reduce((sum, client) => sum + d * (client?.x?.length ?? 0), 0);
  whole("features", d, 1, MOST.features);
  whole("clients times points times features", held, 1, MOST.numbers);
  const made = clients.map((given, i) => {
    const { x, y, cluster } = known(`client ${i}`, given, {
      x: undefined,
      y: undefined,
      cluster: 0,
    });
    const points = rows_of(`x of client ${i}`, x, MOST.points, d);
    const [responses] = rows_of(`y of client ${i}`, [y], 1, points.length);
    return linear_client(points, responses, whole("cluster", cluster, 0, MOST.clusters), d);
  });
  return linear_federation(made, d, null);
}

// One number for all groups, or a list of one a group.
function by_group(name, given, groups, most) {
  const each = Array.isArray(given) ? given : Array(groups).fill(given);
  if (each.length !== groups)
    throw new Error(`${name} must be one number or ${groups}, got ${each.length}`);
  return each.map((value) => whole(name, value, 1, most));
}

// The numbers of a client's points, as far as they were drawn: a reader who drags the noise or a true model
// has the same ones again and again.
const kept_numbers = new Map();
function kept_stream(seed, group, place, line) {
  const name = [seed, group, place, line].join();
  if (kept_numbers.size >= MOST.clients) kept_numbers.clear();
  if (!kept_numbers.has(name))
    kept_numbers.set(name, { source: stream(seed, "points", group, place), numbers: [] });
  const { source, numbers } = kept_numbers.get(name);
  let at = 0;
  const next = (kind) => () => {
    if (at === numbers.length) numbers.push(source[kind]());
    return numbers[at++];
  };
  return { uniform: next("uniform"), normal: next("normal") };
}

// A world drawn from the generator. The points of a client depend on the seed, its group and its
// place in the group: with more clients, more points, other noise or another truth all else stays.
//
// truth [k][d]: theta*_j. clients, points: a group, one number or one for each. features "normal":
// x ~ N(0, I); "line": x = (uniform in [-1.5, 1.5], 1), a slope and a height. shares [groups][k]:
// the share of each truth in the points of a group's clients; default: group j is cluster j.
export function make_linear(given) {
  const settings = known("the linear world", given, {
    truth: undefined,
    clients: 6,
    points: 8,
    noise: 0.5,
    seed: 0,
    features: "normal",
    shares: null,
  });
  const truth = rows_of("truth", settings.truth, MOST.clusters);
  const d = whole("features", truth[0].length, 1, MOST.features);
  const shares =
    settings.shares === null
      ? truth.map((_, j) => truth.map((_, other) => Number(j === other)))
      : rows_of("shares", settings.shares, MOST.clusters, truth.length);
  shares.forEach((row, j) => {
    const total = row.reduce((sum, one) => sum + number("shares", one, "[0, 1]"), 0);
    if (Math.abs(total - 1) > 1e-9)
      throw new Error(`shares must sum to 1, row ${j} sums to ${total}`);
  });
  const sizes = by_group("clients", settings.clients, shares.length, MOST.clients);
  whole(
    "clients",
    sizes.reduce((sum, one) => sum + one, 0),
    1,
    MOST.clients,
  );
  const points = by_group("points", settings.points, shares.length, MOST.points);
  const held = sizes.reduce((sum, size, group) => sum + size * points[group] * d, 0);
  whole("clients times points times features", held, 1, MOST.numbers);
  const noise = number("noise", settings.noise, "[0, inf)", "not be negative");
  const line = one_of("features", settings.features, ["normal", "line"]) === "line";
  if (line && d !== 2)
    throw new Error(`features 'line' is a slope and a height, but truth has ${d} numbers`);

  const clients = [];
  sizes.forEach((size, group) => {
    for (let place = 0; place < size; place++) {
      const draw = kept_stream(settings.seed, group, place, line);
      const source = stream(settings.seed, "sources", group, place);
      const [x, y, sources] = [[], [], []];
      for (let l = 0; l < points[group]; l++) {
        const at = settings.shares === null ? 0 : source.uniform();
        let [j, reached] = [0, shares[group][0]];
        while (at >= reached && j < truth.length - 1) reached += shares[group][++j];
        const row = line ? [3 * draw.uniform() - 1.5, 1] : range(d).map(() => draw.normal());
        x.push(row);
        y.push(row.reduce((sum, value, a) => sum + value * truth[j][a], 0) + noise * draw.normal());
        sources.push(j);
      }
      clients.push({ ...linear_client(x, y, group, d), sources });
    }
  });
  return linear_federation(
    clients,
    d,
    truth.map((row) => [...row]),
  );
}

// argmin F_i, the shortest where several models fit equally well: one client's least squares.
export function best(client) {
  return least_squares(client.xx, client.xy);
}

// How far each model is from its truth under the best matching. (IFCA's success test: the mean
// over the clusters is at most 0.6 sigma.)
export function true_error(models, truth) {
  const apart = models.map((theta) =>
    truth.map((one) => Math.hypot(...one.map((value, a) => value - theta[a]))),
  );
  const matched = best_matching(apart.map((row) => row.map((value) => -value)));
  return apart.map((row, j) => row[matched[j]]);
}

const with_model = (world) => ({ world, model: world.model });

WORLDS.linear = (settings) => with_model(make_linear(settings));
WORLDS.points = (settings) =>
  with_model(linear_world(known("the world", settings, { clients: undefined }).clients));
