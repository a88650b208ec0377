// Who points where: cosine similarities of updates, and the best cut in two (CFL, section II).
// Python: similarity.py

import { norm } from "./contract.js";
import { range } from "./random.js";

// alpha_ij = <Delta theta_i, Delta theta_j> / (‖Delta theta_i‖ ‖Delta theta_j‖) (44). An update of
// length zero has no direction; its similarity to every other is 0.
export function cosine_similarity(updates) {
  const lengths = updates.map(norm);
  const alpha = updates.map(() => new Float64Array(updates.length).fill(1));
  updates.forEach((one, i) => {
    for (let j = 0; j < i; j++) {
      let product = 0;
      for (let a = 0; a < one.length; a++) product += one[a] * updates[j][a];
      const both = lengths[i] * lengths[j];
      alpha[i][j] = alpha[j][i] = both === 0 ? 0 : Math.min(1, Math.max(-1, product / both));
    }
  });
  return alpha;
}

// The two clusters with the smallest maximum similarity across (25): Algorithm 1 joins clients from
// the most similar pair downwards until two clusters are left. The first one holds client 0.
export function optimal_bipartition(similarity) {
  const m = similarity.length;
  if (m < 2) throw new Error(`similarity must compare at least 2 clients to split, got ${m}`);
  const pairs = range(m).flatMap((i) => range(i).map((j) => [j, i]));
  pairs.sort(([a, b], [c, d]) => similarity[c][d] - similarity[a][b]);
  const cluster = range(m);
  let left = m;
  for (const [i, j] of pairs) {
    if (left === 2) break;
    const [kept, joined] = [cluster[i], cluster[j]];
    if (kept === joined) continue;
    for (let one = 0; one < m; one++) if (cluster[one] === joined) cluster[one] = kept;
    left -= 1;
  }
  const halves = [[], []];
  cluster.forEach((name, i) => halves[name === cluster[0] ? 0 : 1].push(i));
  return halves;
}

// alpha_cross^max: the largest similarity between two clusters (Algorithm 3, line 5).
export function cross_similarity(similarity, first, second) {
  return Math.max(...first.flatMap((i) => second.map((j) => similarity[i][j])));
}
