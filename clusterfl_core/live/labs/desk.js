// Mixing desk: three kinds of difference at once, the arrows of eight clients, one border or two.

import { cosine_similarity } from "../engine/similarity.js";
import { digits, html, svg, width_of } from "../parts/dom.js";
import { contour } from "../parts/contour.js";
import { freest } from "../parts/labels.js";
import { laboratory } from "../parts/laboratory.js";
import { latest } from "../parts/latest.js";
import { colour_of } from "../parts/marks.js";
import { make_square } from "../parts/square.js";

const EDGE = 6.5; // of the plane of models, around this slope:
const MIDDLE = 4;
const STEPS = 10; // of a client in a round
const ROUNDS = 60;
const SHIFT = 1.5; // of the ink, by the strongest cameras
const GUESS = Math.log(2); // the loss of guessing
const LEVELS = [0.1, 0.2, 0.3, 0.45, GUESS, 1, 1.5, 2, 3];
const FAILS = 0.6; // of the answers right, or less: one border fails
const MENDS = 0.85; // or more
const WIDEST = 4; // of the ink
const BINS = 32;

const clients = GIVEN.zero.map((_, i) => i);
const camera_of = (i) => (i % 2 ? 1 : -1); // odd clients: a darker picture
const chance_of_one = (height) => 1 / (1 + Math.exp(-height));

// The eight clients' images: ink and name, as chapter 2's `eight` makes them, for all skews at once.
function dealt({ label, feature, conflict }) {
  return clients.map((i) => {
    const camera = camera_of(i);
    const ones = 20 + 20 * label * camera;
    const whole_ones = Math.floor(ones + 0.5) - (ones % 2 === 0.5 ? 1 : 0); // half to even
    const images = GIVEN.chance[i].map((chance, l) => {
      const one = l < whole_ones;
      const ink = (one ? GIVEN.one : GIVEN.zero)[i][l] + SHIFT * feature * camera;
      const renamed = camera > 0 && chance < conflict;
      return [ink, one === renamed ? 0 : 1];
    });
    return { camera, images };
  });
}

// How sure (w, b, c) is that an image shows a 1: w ink + b + c camera.
const height_of = ([w, b, c], ink, camera) => w * ink + b + c * camera;

// A client's own steps of size 1 on its log loss; without cameras the third weight stays 0.
function trained(theta, { camera, images }, cameras) {
  let [w, b, c] = theta;
  for (let step = 0; step < STEPS; step++) {
    let [slope, offset] = [0, 0];
    for (let l = 0; l < images.length; l++) {
      const ink = images[l][0];
      const name = images[l][1];
      const miss = chance_of_one(w * ink + b + c * camera) - name;
      slope += miss * ink;
      offset += miss;
    }
    w -= slope / images.length;
    b -= offset / images.length;
    if (cameras) c -= (camera * offset) / images.length;
  }
  return [w, b, c];
}

// Federated averaging from 0: the way of the model, and the arrows of the first round and at rest.
function averaged(world, cameras) {
  const path = [[0, 0, 0]];
  const round_from = (theta) => world.map((client) => trained(theta, client, cameras));
  const arrows_from = (theta) =>
    round_from(theta).map((end) => end.map((value, a) => value - theta[a]));
  for (let round = 0; round < ROUNDS; round++) {
    const ends = round_from(path.at(-1));
    path.push([0, 1, 2].map((a) => ends.reduce((sum, end) => sum + end[a], 0) / ends.length));
  }
  const model = path.at(-1);
  const answers = world.flatMap(({ camera, images }) =>
    images.map(([ink, name]) => height_of(model, ink, camera) > 0 === name > 0),
  );
  return {
    path,
    model,
    first: arrows_from(path[0]),
    rest: arrows_from(model),
    right: answers.filter(Boolean).length / answers.length,
  };
}

const lengths_mean = (arrows) =>
  arrows.reduce((sum, arrow) => sum + Math.hypot(...arrow), 0) / arrows.length;

function mean_cosine(arrows) {
  const table = cosine_similarity(arrows);
  const all = table.flatMap((row, i) => [...row].filter((_, j) => i !== j));
  return all.reduce((sum, one) => sum + one, 0) / all.length;
}

const skews_of = ({ label, feature, conflict }) => ({ label, feature, conflict });
const ways_of = [false, true].map((cameras) => latest((skews) => averaged(dealt(skews), cameras)));
const way_of = ({ cameras, ...state }) => ways_of[Number(cameras)](skews_of(state));

// Lines of equal mean loss in the plane of slope and offset, at this third weight.
const lines_at = latest(({ third, ...skews }) => {
  const world = dealt(skews);
  const loss = (w, b) => {
    let total = 0;
    for (const { camera, images } of world)
      for (let l = 0; l < images.length; l++) {
        const rise = w * images[l][0] + b + third * camera;
        const height = images[l][1] ? -rise : rise;
        total += height > 30 ? height : Math.log1p(Math.exp(height));
      }
    return total / (world.length * world[0].images.length);
  };
  return contour((x, b) => loss(x + MIDDLE, b), EDGE, 30, LEVELS);
});

function mixed(state) {
  const ways = ways_of.map((play) => play(skews_of(state)));
  const way = way_of(state);
  return {
    world: dealt(state),
    ...way,
    one: ways[0].right,
    both: ways[1].right,
    cosine: mean_cosine(way.first),
    far: lengths_mean(way.first),
    left: lengths_mean(way.rest),
    lines: lines_at({ third: way.model[2], ...skews_of(state) }),
  };
}

// ---------------------------------------------------------------- seen

function arrow_mark(at, [x, y], [right, up], attributes) {
  const [from, to] = [at([x, y]), at([x + right, y + up])];
  const long = Math.hypot(to[0] - from[0], to[1] - from[1]);
  const head = Math.min(7, long / 2);
  const [dx, dy] = [(to[0] - from[0]) / (long || 1), (to[1] - from[1]) / (long || 1)];
  const wing = (side) =>
    `L${(to[0] - head * (dx - side * 0.5 * dy)).toFixed(1)} ${(to[1] - head * (dy + side * 0.5 * dx)).toFixed(1)}`;
  const tip = `M${to[0].toFixed(1)} ${to[1].toFixed(1)}`;
  return [
    svg("path", {
      d: `M${from[0].toFixed(1)} ${from[1].toFixed(1)}L${to[0].toFixed(1)} ${to[1].toFixed(1)}`,
      fill: "none",
      ...attributes,
    }),
    svg("path", {
      d: `${tip}${wing(1)}${tip}${wing(-1)}`,
      fill: "none",
      ...attributes,
      "stroke-dasharray": "none",
    }),
  ];
}

const seen = ([w, b]) => [w - MIDDLE, b]; // in the square

function plane_drawn({ size, at, line }, { path, first, rest, model, lines, left }) {
  const bundle = (from, arrows) => [
    ...arrows.flatMap((arrow, i) =>
      arrow_mark(at, seen(from), arrow, {
        stroke: colour_of(i % 2),
        "stroke-width": 1.8,
        "stroke-dasharray": i % 2 ? "5 3" : "none",
      }),
    ),
  ];
  const mean = [0, 1].map((a) => first.reduce((sum, arrow) => sum + arrow[a], 0) / first.length);
  const covered = [
    ...first.map((arrow) => [path[0], arrow]),
    ...rest.map((arrow) => [model, arrow]),
  ].flatMap(([[w, b], [right, up]]) =>
    [0, 0.2, 0.4, 0.6, 0.8, 1].map((part) => {
      const [x, y] = at(seen([w + part * right, b + part * up]));
      return { x, y, r: 6 };
    }),
  );
  const named = (text, place, side) => {
    const [x, y] = at(seen(place));
    const sides = side > 0 ? ["start", "end"] : ["end", "start"];
    const places = [
      [x + 9 * side, y + 4, sides[0]],
      [x + 9 * side, y - 12 * side, sides[0]],
      [x + 9 * side, y + 12 * side + 8, sides[0]],
      [x, y - 12 * side + 4, "middle"],
      [x - 9 * side, y + 4, sides[1]],
    ];
    return svg("text", { class: "name", ...freest(places, text, covered, size) }, text);
  };
  const [zero, level] = at(seen([0, 0]));
  const marks = [
    svg("path", { class: "grid", d: `M0 ${level}H${size}M${zero} 0V${size}` }),
    svg("text", { x: size - 6, y: level + 16, "text-anchor": "end" }, "slope w"),
    svg("text", { x: zero + 5, y: 14 }, "offset b"),
    ...lines.map(([level, parts]) =>
      svg("path", {
        class: "border",
        fill: "none",
        "stroke-dasharray": level === GUESS ? "6 4" : "none",
        d: parts
          .map(([one, other]) => {
            const [x, y] = at(one);
            const [u, v] = at(other);
            return `M${x.toFixed(1)} ${y.toFixed(1)}L${u.toFixed(1)} ${v.toFixed(1)}`;
          })
          .join(""),
      }),
    ),
    svg("polyline", { class: "trail", stroke: "currentColor", points: line(path.map(seen)) }),
    ...bundle(path[0], first),
    ...arrow_mark(at, seen(path[0]), mean, { stroke: "currentColor", "stroke-width": 3 }),
    ...bundle(model, rest),
    ...[path[0], model].map((place) => {
      const [cx, cy] = at(seen(place));
      return svg("circle", { cx, cy, r: 4, fill: "currentColor" });
    }),
    named("start", path[0], -1),
    named("rest", model, 1),
  ];
  const label =
    `Plane of slope and offset. The model goes from (0, 0) to ` +
    `(${digits(model[0], 1)}, ${digits(model[1], 1)}); there the arrows of the eight clients are ` +
    `${digits(left, 2)} long on average.`;
  return { label, marks };
}

const TALL = 78; // of the images of one camera

function make_images() {
  const picture = svg("svg", { role: "img", class: "chart", height: 2 * TALL + 16 });
  const node = html("figure", {}, picture);
  let again = () => {};
  const wide = width_of(picture, node, 320, () => again());

  function camera_drawn(of, top, width, { world, model, most }) {
    const x = (ink) => (width * (ink + WIDEST)) / (2 * WIDEST);
    const middle = top + TALL / 2 + 6;
    const half = TALL / 2 - 12;
    const camera = camera_of(of);
    const counts = [0, 1].map((name) => binned(world, of, name));
    const [w, b, c] = model;
    const border = -(b + c * camera) / w;
    const ends = [-WIDEST, ...(Math.abs(border) < WIDEST ? [border] : []), WIDEST];
    const parts = ends.slice(1).map((end, j) => [ends[j], end]);
    const wide = x(WIDEST) / BINS;
    return [
      ...parts
        .filter(([low, high]) => height_of(model, (low + high) / 2, camera) > 0)
        .map(([low, high]) =>
          svg("rect", {
            x: x(low),
            y: middle - half,
            width: x(high) - x(low),
            height: 2 * half,
            fill: "currentColor",
            "fill-opacity": 0.13,
          }),
        ),
      ...counts.flatMap((row, name) =>
        row.map((count, bin) => {
          const height = (half * count) / most;
          return count
            ? svg("rect", {
                x: bin * wide + 1,
                y: name ? middle - height : middle,
                width: wide - 1.5,
                height,
                stroke: colour_of(of),
                fill: name ? colour_of(of) : "none",
              })
            : "";
        }),
      ),
      svg("path", { class: "axis", d: `M0 ${middle}H${width}` }),
      ...(Math.abs(border) < WIDEST
        ? [
            svg("path", {
              d: `M${x(border)} ${middle - half - 2}V${middle + half + 2}`,
              stroke: "currentColor",
              "stroke-width": 2.5,
            }),
          ]
        : []),
      svg("text", { x: 0, y: top + 11 }, `${of ? "odd" : "even"} clients`),
    ];
  }

  function binned(world, of, name) {
    const counts = Array(BINS).fill(0);
    world.forEach(({ images }, i) => {
      if (i % 2 !== of) return;
      for (const [ink, own] of images)
        if (own === name)
          counts[Math.min(BINS - 1, Math.floor((BINS * (ink + WIDEST)) / (2 * WIDEST)))] += 1;
    });
    return counts;
  }

  function paint(found) {
    const width = wide();
    const all = [0, 1].flatMap((of) => [0, 1].flatMap((name) => binned(found.world, of, name)));
    const look = { ...found, most: Math.max(...all) };
    picture.setAttribute("viewBox", `0 0 ${width} ${2 * TALL + 16}`);
    const [w, b, c] = found.model;
    picture.setAttribute(
      "aria-label",
      `Ink of the images, even clients above, odd clients below. Borders at ` +
        `${digits(-(b - c) / w, 2)} and ${digits(-(b + c) / w, 2)}.`,
    );
    picture.replaceChildren(
      ...camera_drawn(0, 0, width, look),
      ...camera_drawn(1, TALL, width, look),
      svg("text", { x: width, y: 2 * TALL + 13, "text-anchor": "end" }, "more ink in the middle →"),
    );
  }

  return {
    node,
    show(found) {
      again = () => paint(found);
      again();
    },
  };
}

laboratory("desk", {
  title: "mixing desk",
  *prepare(state) {
    for (const play of ways_of) yield play(skews_of(state));
    yield lines_at({ third: way_of(state).model[2], ...skews_of(state) });
  },
  compute: mixed,
  told({ label, feature, conflict, cameras }, { one, both, left }) {
    const mix =
      `Label skew ${digits(label, 2)}, feature skew ${digits(feature, 2)}, conflict ` +
      `${digits(conflict, 2)}`;
    return (
      `${mix}: one border reads ${digits(100 * one, 0)} % of the images right, a border for each ` +
      `camera ${digits(100 * both, 0)} %. Shown: ${cameras ? "two borders" : "one border"}; at rest ` +
      `the arrows are ${digits(left, 2)} long.`
    );
  },
  readings: (_, { cosine, far, left, one, both }) => [
    ["mean cosine, round 1", cosine, 2],
    ["mean length, round 1", far, 2],
    ["mean length at rest", left, 2],
    ["right, one border", 100 * one, 1, " %"],
    ["right, one a camera", 100 * both, 1, " %"],
  ],
  python: ({ label, feature, conflict, cameras }) =>
    [
      "import clusterfl_core as cf",
      "import numpy as np",
      "import torch",
      "",
      'images = cf.data.load("digits")',
      "two = images.y_train < 2",
      "z, y = images.x_train[two].double() / 255, images.y_train[two]",
      "z = z[:, 2:6, 3:5].mean((1, 2))",
      "z = (z - z.mean()) / z.std()",
      "random = np.random.default_rng(0)",
      "pools = [np.flatnonzero(y == c) for c in (0, 1)]",
      "zero, one = [z[random.choice(pool, (8, 40))] for pool in pools]",
      "chance = torch.from_numpy(random.random((8, 40)))",
      "odd = (torch.arange(8) % 2 == 1)[:, None]",
      "sign = 2.0 * odd - 1",
      "",
      `name = torch.arange(40) < (20 + 20 * ${label} * sign).round()`,
      `ink = torch.where(name, one, zero) + 1.5 * ${feature} * sign`,
      `name = (name ^ ((chance < ${conflict}) & odd)).double()`,
      "",
      "",
      "def rest(cameras):",
      "    x = torch.stack([ink, torch.ones(8, 40), cameras * sign.expand(8, 40)], 2)",
      "    theta = torch.zeros(8, 3, dtype=torch.float64)",
      `    for t in range(${ROUNDS + 1}):`,
      "        after = theta",
      `        for _ in range(${STEPS}):`,
      "            miss = torch.sigmoid((x @ after[:, :, None])[..., 0]) - name",
      "            after = after - (miss[..., None] * x).mean(1)",
      "        if t == 0:",
      "            first = after - theta",
      "        last, theta = theta, after.mean(0).expand(8, 3)",
      "    right = ((x @ last[:, :, None])[..., 0] > 0) == (name > 0)",
      "    return first, after - last, 100 * float(right.double().mean())",
      "",
      "",
      `first, end, _ = rest(${Number(cameras)})`,
      "cosine = (float(cf.cfl.cosine_similarity(first).sum()) - 8) / 56",
      "print(cosine, float(first.norm(dim=1).mean()), float(end.norm(dim=1).mean()))",
      "print(rest(0)[2], rest(1)[2])",
      "",
    ].join("\n"),
  task(_, { one, both }, __, memory) {
    const fails = one <= FAILS;
    if (fails && both >= MENDS) memory.mended = true;
    if (fails && both <= FAILS) memory.lost = true;
    if (memory.mended && memory.lost)
      return [
        "Solved: you broke one border twice, and a border for each camera mended it once.",
        true,
      ];
    if (memory.mended)
      return [
        "Broken, and mended by two borders. Now break it so that two borders fail as well.",
        false,
        "mended",
      ];
    if (memory.lost)
      return [
        "Broken, and two borders fail as well. Now break it so that they mend it.",
        false,
        "lost",
      ];
    return [
      `One border reads ${digits(100 * one, 0)} % right; broken means at most ${100 * FAILS} %.`,
      false,
    ];
  },
  build(lab) {
    const square = make_square(EDGE, plane_drawn);
    const images = make_images();
    return {
      main: [square.node, images.node],
      side: ["label", "feature", "conflict", "cameras"].map((entry) => lab.control(entry)),
      key:
        "Square: the models (w, b), with lines of equal mean loss (long dashes: the loss of guessing), " +
        "the way of the averaged model, and the updates of the eight clients in round 1 and at rest " +
        "(solid: even; short dashes: odd; thick: their mean). With a border for each camera the plane " +
        "is a cut through three weights, at the third weight of the model at rest. Below: ink of the " +
        "images that are called 1 (filled, up) and 0 (hollow, down), and the border; grey: the model says 1.",
      show({ found }) {
        square.show(found, []);
        images.show(found);
      },
    };
  },
});
