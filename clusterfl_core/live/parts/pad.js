// A drawing of 8 by 8 squares: by finger, mouse or keys.

import { html, no_fling } from "./dom.js";

const SIDE = 8;
const FULL = 16; // the darkest grey
const STEPS_OF = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// changed(ink, begins): 64 greys from 0 to 16, row by row; begins at the first of a stroke.
// → {node, show(ink)}
export function make_pad(changed) {
  let ink = Array(SIDE * SIDE).fill(0);
  let stands = 0; // the square that the keys are on
  let stroke = null;
  const squares = ink.map((_, at) =>
    html("div", { role: "gridcell", tabindex: at ? -1 : 0, class: "square" }),
  );
  const rows = Array.from({ length: SIDE }, (_, row) =>
    html("div", { role: "row" }, ...squares.slice(SIDE * row, SIDE * (row + 1))),
  );
  const node = html("div", { role: "grid", class: "pad", "aria-label": "Drawing" }, ...rows);

  // The ink after a point of the stroke, in squares: full within it, less on its neighbours.
  const pressed = (now, [x, y]) =>
    now.map((grey, at) => {
      const far = Math.hypot((at % SIDE) + 0.5 - x, Math.floor(at / SIDE) + 0.5 - y);
      return Math.max(grey, Math.round(FULL * Math.max(0, Math.min(1, 1.5 - 1.25 * far))));
    });

  function place(event) {
    const box = node.getBoundingClientRect();
    return [
      ((event.clientX - box.left) / box.width) * SIDE,
      ((event.clientY - box.top) / box.height) * SIDE,
    ];
  }

  function draw_to(event) {
    const [from, to] = [stroke.at, place(event)];
    const parts = Math.max(1, Math.ceil(4 * Math.hypot(to[0] - from[0], to[1] - from[1])));
    let now = ink;
    for (let part = 1; part <= parts; part++)
      now = pressed(
        now,
        [0, 1].map((a) => from[a] + ((to[a] - from[a]) * part) / parts),
      );
    stroke.at = to;
    if (now.every((grey, at) => grey === ink[at])) return;
    changed(now, stroke.begins);
    stroke.begins = false;
  }

  node.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    event.preventDefault();
    node.setPointerCapture(event.pointerId);
    stroke = { at: place(event), begins: true };
    draw_to(event);
  });
  no_fling(node, ".pad");
  node.addEventListener("pointermove", (event) => {
    if (stroke) draw_to(event);
  });
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"])
    node.addEventListener(end, () => {
      stroke = null;
    });

  function go_to(at) {
    squares[stands].tabIndex = -1;
    stands = at;
    squares[at].tabIndex = 0;
    squares[at].focus({ preventScroll: true });
  }

  const put = (at, grey) => changed(ink.map((one, i) => (i === at ? grey : one)), true);

  node.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const way = STEPS_OF[event.key];
    if (!way && event.key !== " " && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    if (!way) {
      put(stands, ink[stands] ? 0 : FULL);
      return;
    }
    const [x, y] = [(stands % SIDE) + way[0], Math.floor(stands / SIDE) + way[1]];
    if (x < 0 || x >= SIDE || y < 0 || y >= SIDE) return;
    go_to(SIDE * y + x);
    if (event.shiftKey) put(stands, FULL);
  });

  return {
    node,
    show(now) {
      ink = now;
      squares.forEach((square, at) => {
        const grey = now[at];
        if (square.dataset.grey === String(grey)) return;
        square.dataset.grey = grey;
        square.style.setProperty("--ink", `${(100 * grey) / FULL}%`);
        const tint = grey === 0 ? "blank" : grey > FULL / 2 ? "dark" : "light";
        const [row, column] = [Math.floor(at / SIDE) + 1, (at % SIDE) + 1];
        square.setAttribute("aria-label", `row ${row}, column ${column}: ${tint}`);
      });
    },
  };
}
