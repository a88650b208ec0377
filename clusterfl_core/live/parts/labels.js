// Where a name has room: on no mark, and inside the picture.

const [LETTER, ABOVE, BELOW] = [7.6, 11, 3]; // pixels: of a letter, and of a line from where it stands
const PLACES = 12; // that are tried along a line

// How much of a name at [x, y, anchor] lies on marks {x, y, r} or outside a square of `size`.
function crowding([x, y, anchor], words, taken, size) {
  const wide = LETTER * words.length;
  const left = x - { start: 0, middle: wide / 2, end: wide }[anchor];
  const [right, top, low] = [left + wide, y - ABOVE, y + BELOW];
  const outside = Math.max(0, -left, right - size) + Math.max(0, -top, low - size);
  const covered = taken.map((mark) => {
    const [a, b] = [
      Math.max(left - mark.x, mark.x - right, 0),
      Math.max(top - mark.y, mark.y - low, 0),
    ];
    return Math.max(0, mark.r - Math.hypot(a, b));
  });
  return 10 * outside + covered.reduce((sum, one) => sum + one, 0);
}

// The place with most room; the first of those that are as good. → attributes of a text
export function freest(places, words, taken, size) {
  const [x, y, anchor] = places
    .map((one) => [one, crowding(one, words, taken, size)])
    .reduce((best_one, one) => (one[1] < best_one[1] ? one : best_one))[0];
  return { x, y, "text-anchor": anchor };
}

// What a name covers, with `around` pixels on all sides.
function covered_by([x, y, anchor], words, around) {
  const wide = LETTER * words.length;
  const left = x - { start: 0, middle: wide / 2, end: wide }[anchor];
  return [left - around, left + wide + around, y - ABOVE - around, y + BELOW + around];
}

// How far a line from [x, y] to [x, y] and so on runs within a box.
function run_within([left, right, top, low], line) {
  let sum = 0;
  for (let at = 1; at < line.length; at++) {
    const [a, b] = [line[at - 1][0], line[at - 1][1]];
    const [c, d] = [line[at][0], line[at][1]];
    if ((a < left && c < left) || (a > right && c > right)) continue;
    if ((b < top && d < top) || (b > low && d > low)) continue;
    let [from, to] = [0, 1]; // the part that is inside
    for (const [start, way, least, most] of [
      [a, c - a, left, right],
      [b, d - b, top, low],
    ]) {
      if (way === 0) continue;
      const ends = [(least - start) / way, (most - start) / way];
      from = Math.max(from, Math.min(...ends));
      to = Math.min(to, Math.max(...ends));
    }
    sum += Math.max(0, to - from) * Math.hypot(c - a, d - b);
  }
  return sum;
}

// Places for a name along a line, the first ones near the point that is wanted.
function places_along(line, wanted) {
  const found = [];
  const all = line.reduce((sum, [x, y], at) => {
    const [a, b] = line[Math.max(0, at - 1)];
    return sum + Math.hypot(x - a, y - b);
  }, 0);
  let before = 0;
  line.forEach(([x, y], at) => {
    const [a, b] = line[Math.max(0, at - 1)];
    const long = Math.hypot(x - a, y - b);
    while (found.length * (all / PLACES) <= before + long && found.length <= PLACES) {
      const part = long ? (found.length * (all / PLACES) - before) / long : 1;
      found.push([a + part * (x - a), b + part * (y - b)]);
    }
    before += long;
  });
  const far = ([x, y]) => Math.hypot(x - wanted[0], y - wanted[1]);
  return [wanted, ...found].sort((one, other) => far(one) - far(other));
}

// A place for the name of a line: crossed by no line, on no other name, inside a box, near the point of
// its line that is wanted; under it rather than above it, if that is wished. taken: boxes of other
// names, to which its own is added. → attributes of a text
export function clear_place(own, wanted, words, { lines, taken, box, under = false }) {
  let least = Infinity;
  let found = null;
  places_along(own, wanted).forEach(([x, y]) => {
    const away = Math.hypot(x - wanted[0], y - wanted[1]);
    if (0.1 * away >= least) return;
    for (const [side, rise] of (under ? [17, -7] : [-7, 17]).entries()) {
      for (const [turn, anchor] of ["end", "start"].entries()) {
        const place = [x + [-2, 2][turn], y + rise, anchor];
        const near = covered_by(place, words, 3);
        const wide = covered_by(place, words, 7); // another line there makes the name look like its own
        let cost = 0.1 * away + 2 * side + turn;
        cost += 10 * (Math.max(0, box[0] - near[0]) + Math.max(0, near[1] - box[1]));
        cost += 10 * (Math.max(0, box[2] - near[2]) + Math.max(0, near[3] - box[3]));
        for (const [left, right, top, low] of taken)
          if (right > near[0] && left < near[1] && low > near[2] && top < near[3]) cost += 200;
        for (const line of lines) {
          if (cost >= least) break;
          const passed = line === own ? run_within(near, line) : run_within(wide, line);
          if (passed) cost += line === own ? 10 * passed : passed + 10 * run_within(near, line);
        }
        if (cost >= least) continue;
        least = cost;
        found = place;
      }
    }
  });
  taken.push(covered_by(found, words, 2));
  return { x: found[0], y: found[1], "text-anchor": found[2] };
}

// The place with most room beside a mark of the radius `far`.
export function beside([x, y], far, words, taken, size) {
  const near = 0.7 * far + 3;
  const places = [
    [x + near, y - near + 2, "start"],
    [x + near, y + near + 8, "start"],
    [x - near, y - near + 2, "end"],
    [x - near, y + near + 8, "end"],
    [x + far + 4, y + 4, "start"],
    [x - far - 4, y + 4, "end"],
    [x, y - far - 5, "middle"],
    [x, y + far + 14, "middle"],
  ];
  return freest(places, words, taken, size);
}

// What a name lies on: circles around some places, all of one radius.
export const circles = (places, r) => places.map(([x, y]) => ({ x, y, r }));
