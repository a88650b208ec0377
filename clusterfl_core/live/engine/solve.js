import { whole } from "./check.js";

// Small dense problems: a least-squares solution, and the best one-to-one matching.

// The eigenvalues of a symmetric matrix a (d * d, row after row) and its eigenvectors, the columns
// of v: Jacobi's rotations, each of which makes one pair of entries zero.
export function eigen(matrix, d) {
  const a = Float64Array.from(matrix);
  const v = new Float64Array(d * d);
  for (let i = 0; i < d; i++) v[i * d + i] = 1;
  for (let sweep = 0; sweep < 60; sweep++) {
    let [off, all] = [0, 0];
    for (let i = 0; i < d; i++) {
      for (let j = 0; j < d; j++) {
        all += a[i * d + j] ** 2;
        if (i !== j) off += a[i * d + j] ** 2;
      }
    }
    if (!(off > 1e-36 * all)) break;
    for (let p = 0; p < d - 1; p++) {
      for (let q = p + 1; q < d; q++) {
        if (a[p * d + q] === 0) continue;
        const angle = (a[q * d + q] - a[p * d + p]) / (2 * a[p * d + q]);
        const t = (angle < 0 ? -1 : 1) / (Math.abs(angle) + Math.sqrt(angle * angle + 1));
        const c = 1 / Math.sqrt(t * t + 1);
        const s = t * c;
        for (let i = 0; i < d; i++) {
          const [x, y] = [a[i * d + p], a[i * d + q]];
          [a[i * d + p], a[i * d + q]] = [c * x - s * y, s * x + c * y];
        }
        for (let i = 0; i < d; i++) {
          const [x, y] = [a[p * d + i], a[q * d + i]];
          [a[p * d + i], a[q * d + i]] = [c * x - s * y, s * x + c * y];
        }
        for (let i = 0; i < d; i++) {
          const [x, y] = [v[i * d + p], v[i * d + q]];
          [v[i * d + p], v[i * d + q]] = [c * x - s * y, s * x + c * y];
        }
      }
    }
  }
  return { values: Float64Array.from({ length: d }, (_, i) => a[i * d + i]), vectors: v };
}

// The shortest x with the smallest ‖A x - b‖, A symmetric and without negative eigenvalues:
// directions of which A knows nothing but rounding are left out.
export function least_squares(matrix, side) {
  const d = side.length;
  const { values, vectors } = eigen(matrix, d);
  const least = Math.max(...values) * d * 2 ** -50;
  const x = new Float64Array(d);
  for (let e = 0; e < d; e++) {
    if (!(values[e] > least)) continue;
    let along = 0;
    for (let i = 0; i < d; i++) along += vectors[i * d + e] * side[i];
    for (let i = 0; i < d; i++) x[i] += (vectors[i * d + e] * along) / values[e];
  }
  return x;
}

// The one-to-one matching of rows and columns with the largest sum (Python: matching.py, by the
// Hungarian method; here over all sets of columns, for not more columns than a page can show).
export function best_matching(table) {
  const [rows, columns] = [table.length, table[0].length];
  whole("columns of a matching", columns, rows, 12);
  const found = new Map();
  const from = (row, taken) => {
    if (row === rows) return { worth: 0, columns: [] };
    const key = row * 2 ** columns + taken;
    if (found.has(key)) return found.get(key);
    let most = { worth: -Infinity, columns: [] };
    for (let j = 0; j < columns; j++) {
      if (taken & (1 << j)) continue;
      const rest = from(row + 1, taken | (1 << j));
      const worth = table[row][j] + rest.worth;
      if (worth > most.worth) most = { worth, columns: [j, ...rest.columns] };
    }
    found.set(key, most);
    return most;
  };
  return from(0, 0).columns;
}
