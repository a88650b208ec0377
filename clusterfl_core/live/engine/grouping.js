// How many groups, if any: Ward's tree of some rows, silhouettes, and clouds without groups.
// Python: grouping.py
//
// Ward's tree (1963) joins rows to groups so that the squared distances to the groups' means grow
// least. A silhouette (Rousseeuw, 1987) is the mean over the rows of (b - a) / max(a, b), a the mean
// distance of a row to its own group, b that to the nearest other group. It means nothing by itself:
// each cut is held against 99 clouds of the same spread that have no groups.

import { range, stream } from "./random.js";
import { eigen } from "./solve.js";

const CLOUDS = 99; // clouds without groups that a cut is held against
const PASSED = 4; // so many of them may look as much like groups as the rows do: about one in twenty

const mean_over = (values) => values.reduce((sum, one) => sum + one, 0) / values.length;

const distances_between = (rows) =>
  rows.map((one) =>
    Float64Array.from(rows, (other) =>
      Math.sqrt(one.reduce((sum, value, a) => sum + (value - other[a]) ** 2, 0)),
    ),
  );

// The mean silhouette of a partition, from the distances [n][n] and each row's group 0, 1, ….
export function silhouette(distances, own) {
  const k = Math.max(...own) + 1;
  const sizes = Array(k).fill(0);
  own.forEach((j) => {
    sizes[j] += 1;
  });
  const values = own.map((mine, i) => {
    if (sizes[mine] === 1) return 0; // a row alone in its group
    const sums = new Float64Array(k);
    own.forEach((j, other) => {
      sums[j] += distances[i][other];
    });
    const within = sums[mine] / (sizes[mine] - 1);
    const across = Math.min(...range(k).map((j) => (j === mine ? Infinity : sums[j] / sizes[j])));
    return (across - within) / (Math.max(across, within) || 1);
  });
  return mean_over(values);
}

// Names 0, 1, … for the groups, in the order of their first rows.
export function in_order(labels) {
  const names = new Map();
  return labels.map((label) => {
    if (!names.has(label)) names.set(label, names.size);
    return names.get(label);
  });
}

// Ward's tree of the rows, cut into k = 2, …, most groups: {labels: [most - 1][n], scores}. In each step
// the two groups are joined whose join costs least, by the costs that Lance and Williams carry on.
export function cuts(rows, most = Math.floor(rows.length / 2)) {
  const n = rows.length;
  const [labels, scores] = [[], []];
  if (most < 2) return { labels, scores };
  const apart = distances_between(rows);
  const cost = apart.map((row) => row.map((far) => far * far)); // squared, as between single rows
  const sizes = Array(n).fill(1);
  const own = range(n);
  for (let left = n - 1; left >= 2; left--) {
    let [a, b, least] = [-1, -1, Infinity];
    for (let i = 0; i < n; i++) {
      if (!sizes[i]) continue;
      for (let j = i + 1; j < n; j++) {
        if (sizes[j] && cost[i][j] < least) [a, b, least] = [i, j, cost[i][j]];
      }
    }
    for (let c = 0; c < n; c++) {
      if (!sizes[c] || c === a || c === b) continue;
      const [one, other, third] = [sizes[a], sizes[b], sizes[c]];
      cost[a][c] = cost[c][a] =
        ((third + one) * cost[c][a] + (third + other) * cost[c][b] - third * least) /
        (one + other + third);
    }
    sizes[a] += sizes[b];
    sizes[b] = 0;
    for (let i = 0; i < n; i++) if (own[i] === b) own[i] = a;
    if (left > most) continue;
    labels.unshift(in_order(own));
    scores.unshift(silhouette(apart, labels[0]));
  }
  return { labels, scores };
}

// A cloud of n points that spreads as the rows do, without groups: their singular values stay, who lies
// where is left to `source`. In coordinates of its own: distances are all that counts.
function spread_alike(rows, source) {
  const n = rows.length;
  const d = rows[0].length;
  const middle = range(d).map((a) => mean_over(rows.map((row) => row[a])));
  const centered = rows.map((row) => row.map((value, a) => value - middle[a]));
  // The squared singular values, from the smaller of the two tables of products.
  const products = (vectors) =>
    vectors.flatMap((one) =>
      vectors.map((other) => one.reduce((sum, value, a) => sum + value * other[a], 0)),
    );
  const table = n <= d ? centered : range(d).map((a) => centered.map((row) => row[a]));
  const all = Array.from(eigen(products(table), table.length).values).sort((a, b) => b - a);
  const values = all.filter((value) => value > 1e-12 * all[0]);
  return () => {
    const drawn = range(n).map(() => values.map(() => source.normal()));
    const columns = values.map((_, c) => {
      const column = drawn.map((row) => row[c]);
      const mean = mean_over(column);
      return column.map((value) => value - mean);
    });
    // Columns made orthonormal one after another, twice, or rounding would grow.
    columns.forEach((column, c) => {
      for (const earlier of [...columns.slice(0, c), ...columns.slice(0, c)]) {
        const along = column.reduce((sum, value, i) => sum + value * earlier[i], 0);
        column.forEach((_, i) => {
          column[i] -= along * earlier[i];
        });
      }
      const length = Math.sqrt(column.reduce((sum, value) => sum + value * value, 0));
      column.forEach((_, i) => {
        column[i] /= length;
      });
    });
    return range(n).map((i) => columns.map((column, c) => column[i] * Math.sqrt(values[c])));
  };
}

// The cut of some rows that stands out from the clouds, or null.
function standing_out(rows, source, least) {
  const { labels, scores } = cuts(rows);
  const first = rows[0];
  if (!scores.length || rows.every((row) => row.every((value, a) => value === first[a])))
    return null;
  const next = spread_alike(rows, source);
  const clouds = range(CLOUDS).map(() => cuts(next()).scores);
  const usual = scores.map((_, c) => mean_over(clouds.map((cloud) => cloud[c])));
  const excess = scores.map((score, c) => score - usual[c]);
  const most = Math.max(...excess);
  const as_much = clouds.filter(
    (cloud) => Math.max(...cloud.map((score, c) => score - usual[c])) >= most,
  );
  return most >= least && as_much.length <= PASSED ? labels[excess.indexOf(most)] : null;
}

// The groups of some rows, perhaps one only, in the order of first rows. Each row's group; of the cuts of
// Ward's tree the one is taken whose silhouette exceeds most, and by `least`, that of the same cut of the
// clouds. recursive: each group found is asked again.
export function groups_among(rows, seed, least = 0.07, recursive = false) {
  const label = rows.map(() => 0);
  const waiting = rows.length ? [range(rows.length)] : [];
  while (waiting.length) {
    const who = waiting.pop();
    const cut = standing_out(
      who.map((i) => rows[i]),
      stream(seed, "clouds", who[0], who.length),
      least,
    );
    if (cut === null) continue;
    const next = Math.max(...label) + 1;
    who.forEach((i, row) => {
      label[i] = next + cut[row];
    });
    if (!recursive) continue;
    for (let j = 0; j <= Math.max(...cut); j++) waiting.push(who.filter((_, row) => cut[row] === j));
  }
  return in_order(label);
}
