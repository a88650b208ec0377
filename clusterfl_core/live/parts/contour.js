// Lines of equal height in a square from -edge to edge, by marching squares.

// height(x, y); cells: along a side. → [[level, [[[x, y], [x, y]] …]] …], pieces of each line.
export function contour(height, edge, cells, levels) {
  const place = (i) => -edge + (2 * edge * i) / cells;
  const heights = Array.from({ length: cells + 1 }, (_, j) =>
    Array.from({ length: cells + 1 }, (__, i) => height(place(i), place(j))),
  );
  const corner = (i, j) => [place(i), place(j), heights[j][i]];
  return levels.map((level) => {
    const pieces = [];
    for (let j = 0; j < cells; j++)
      for (let i = 0; i < cells; i++) {
        const corners = [corner(i, j), corner(i + 1, j), corner(i + 1, j + 1), corner(i, j + 1)];
        const met = corners.flatMap((one, c) => {
          const other = corners[(c + 1) % 4];
          if (one[2] > level === other[2] > level) return [];
          const part = (level - one[2]) / (other[2] - one[2]);
          return [[0, 1].map((a) => one[a] + part * (other[a] - one[a]))];
        });
        for (let c = 0; c + 1 < met.length; c += 2) pieces.push([met[c], met[c + 1]]);
      }
    return [level, pieces];
  });
}
