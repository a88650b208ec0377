// Where a name has room: on no mark, and inside the picture.

const [LETTER, ABOVE, BELOW] = [7.6, 11, 3]; // pixels: of a letter, and of a line from where it stands

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

// The same beside a mark of the radius `far`.
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
