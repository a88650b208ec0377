// Two hundred random starts: how many succeed, and what a start's loss says about it.

import { scattered, training_loss } from "../engine/starts.js";
import { step } from "../engine/loop.js";
import { button } from "./controls.js";
import { digits, html, kept_number, svg } from "./dom.js";

const STARTS = 200;
const ROUNDS = 30;
const WORK = 12; // milliseconds between two pictures
const TALL = 128;

// run(): the run whose world and algorithm are used; success(bank, world); load(models) puts one of
// the starts on the table; told(sentence). → {node, forget()}
export function make_starts({ run, radius, success, load, told }) {
  let found = [];
  let frame = 0;
  const picture = svg("svg", { role: "img", class: "chart", height: TALL });
  picture.setAttribute("aria-label", "No starts drawn yet.");
  const said = html("p");
  const draw = button(`Draw ${STARTS} starts`, () => begin_starts());
  const low = button("Load the start of lowest loss", () =>
    load(least().models, "of the lowest loss"),
  );
  const lost = button("Load one that lost a group", () =>
    load(found.find((one) => !one.right).models, "that lost a group"),
  );
  const result = html(
    "div",
    { class: "panel", hidden: true },
    said,
    picture,
    html("div", { class: "buttons" }, low, lost),
  );
  const node = html(
    "section",
    { class: "starts", "aria-label": `${STARTS} starts` },
    html("div", { class: "buttons" }, draw),
    result,
  );
  const least = () => found.reduce((best_one, one) => (one.loss < best_one.loss ? one : best_one));

  function one_start(number) {
    const { algorithm, world, description } = run();
    const models = scattered(
      algorithm.clusters,
      world.model.size,
      radius,
      description.seed,
      number,
    ).map((theta) => Array.from(theta, kept_number));
    let state = algorithm.init(
      world,
      description.seed,
      models,
    );
    try {
      for (let round = 0; round < ROUNDS; round++) state = step(algorithm, world, state);
    } catch {
      return { models, loss: Infinity, right: false };
    }
    return {
      models,
      loss: training_loss(world.model, state.bank, world),
      right: success(state.bank, world),
    };
  }

  function begin_starts() {
    cancelAnimationFrame(frame);
    found = [];
    result.hidden = false;
    go_on();
  }

  function go_on() {
    const end = performance.now() + WORK;
    while (found.length < STARTS && performance.now() < end) found.push(one_start(found.length));
    show();
    if (found.length < STARTS) frame = requestAnimationFrame(go_on);
    else told(said.textContent);
  }

  function show() {
    const rows = [found.filter((one) => one.right), found.filter((one) => !one.right)];
    const [right, wrong] = rows.map((row) => row.length);
    const done = found.length === STARTS;
    const drawn = done ? STARTS : `${found.length} so far of ${STARTS}`;
    const share_right = digits((100 * right) / found.length, 1);
    said.textContent =
      `Of ${drawn} starts, ${right} end with every group on a model of its own ` +
      `(${share_right} %) after ${ROUNDS} rounds; ${wrong} do not.`;
    low.disabled = !done;
    lost.disabled = !done || !wrong;
    const width = Math.max(200, picture.clientWidth || 300);
    const finite = found.map((one) => one.loss).filter(Number.isFinite);
    const [least_loss, most] = [Math.min(...finite, Infinity), Math.max(...finite, -Infinity)];
    const x = (loss) =>
      8 +
      (width - 16) * (Number.isFinite(loss) ? (loss - least_loss) / (most - least_loss || 1) : 1);
    const y = (row, i) => 20 + 50 * row + 3.5 * ((i * 7) % 8);
    picture.setAttribute("viewBox", `0 0 ${width} ${TALL}`);
    picture.setAttribute(
      "aria-label",
      finite.length
        ? `Final loss of each start, from ${digits(least_loss)} to ${digits(most)}.`
        : "No start yet.",
    );
    picture.replaceChildren(
      svg("text", { x: 0, y: 10 }, `every group found: ${right} ●`),
      svg("text", { x: 0, y: 60 }, `a group lost: ${wrong} ◇`),
      ...rows[0].map((one, i) =>
        svg("circle", { class: "hit", r: 3, cx: x(one.loss), cy: y(0, i) }),
      ),
      ...rows[1].map((one, i) =>
        svg("path", {
          class: "miss",
          d: `M${x(one.loss).toFixed(1)} ${y(1, i) + 1}l3.5 3.5l-3.5 3.5l-3.5 -3.5z`,
        }),
      ),
      svg("path", { class: "axis", d: `M0 ${TALL - 16}H${width}` }),
      ...(finite.length
        ? [
            svg("text", { x: 0, y: TALL - 3 }, `${digits(least_loss)} final loss`),
            svg("text", { x: width, y: TALL - 3, "text-anchor": "end" }, digits(most)),
          ]
        : []),
    );
  }

  return {
    node,
    forget() {
      cancelAnimationFrame(frame);
      found = [];
      result.hidden = true;
    },
  };
}
