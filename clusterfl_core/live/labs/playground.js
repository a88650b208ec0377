// The playground: seven methods side by side on digits, eight missions, a digit drawn.

import { seen_client, views_of } from "../engine/patchwork.js";
import { MLP, unpack_digits } from "../engine/digits.js";
import { judged_mission, spoken_method } from "../engine/missions.js";
import { ALONE, PULL, RIVALS, begin_rivals, next_of_rival } from "../engine/rivals.js";
import { button } from "../parts/controls.js";
import { digits, html, listed, svg } from "../parts/dom.js";
import { make_identities } from "../parts/identities.js";
import { laboratory } from "../parts/laboratory.js";
import { colour_of, group_mark, ink_on, spoken_mark } from "../parts/marks.js";
import { make_pad } from "../parts/pad.js";
import { make_worker, serve } from "../parts/worker.js";

const [TALL, EDGE_LEFT, EDGE_RIGHT, LETTERS] = [180, 34, 76, 13];
const [DRAWN, TESTED] = [10, 360]; // images in a row of the first picture, and for testing
const READER = MLP(64, 32, 10);
const WORLD = ["groups", "angle", "swaps", "skew", "points", "clients", "last", "liars"];
const HIDDEN = ["groups", "angle", "clients", "last"]; // where a mission hides the groups
const BLANK = Array(64).fill(0);
const DASHES = ["7 4", "2 3", "9 3 2 3", "none", "14 4", "4 2", "1 4"];
const SEEN =
  "First picture: what a client of each group sees. Curves: accuracy on 360 test images as a " +
  "client's group sees them, each digit as often as in the client's own mix; liars are not " +
  "judged. FedSoft reads with each client's personal model, FedEM with a mixture of its models, " +
  "the others with the model that a client follows. Everything is computed in your browser: " +
  "scikit-learn's digits, a network 64-32-10, full-batch steps. One-shot clustering trains " +
  `${ALONE} steps alone in round 1; FedSoft pulls with λ = ${PULL}. Participation is of FedAvg, ` +
  "one-shot, IFCA and FedEM; CFL and FedSoft ask everybody. One start of each is shown; another " +
  "may end otherwise.";

let all_images = null;
const images_of_page = () => (all_images ??= unpack_digits(DIGITS));

// What the runs depend on: the state but for what is only looked at.
function settings_of(state) {
  const { method, mission, ink, rounds, ...settings } = state;
  return settings;
}

// What draws, called again only where the key says that something changed.
function once(show) {
  let before = null;
  return (key, ...given) => {
    if (key === before) return;
    before = key;
    show(...given);
  };
}

const mission_of = ({ mission }) => GIVEN.missions.find(({ key }) => key === mission) ?? null;
const hides_groups = ({ mission }) => mission === "find";

// ---------------------------------------------------------------- in the worker

let bench = { name: "", runs: {}, frames: [] };

// The round of a state, played as far as needed: {round, [method]: what is shown of it}.
function answer({ settings, round }) {
  const name = JSON.stringify(settings);
  if (bench.name !== name)
    bench = { name, runs: begin_rivals(settings, images_of_page()), frames: [] };
  const { runs, frames } = bench;
  while (frames.length < round) {
    const frame = { round: frames.length + 1 };
    for (const one of RIVALS) {
      const { run, shown } = next_of_rival(runs[one]);
      runs[one] = run;
      frame[one] = shown;
    }
    frames.push(frame);
  }
  return frames[round - 1];
}

serve(answer);

// ---------------------------------------------------------------- in the page

const worker = make_worker(answer);
let flying = false;
let waiting = null;

// One question at a time, and of those that wait the last one: whoever drags a slider waits for the
// world where it stops.
function ask_latest(question) {
  return new Promise((resolve, reject) => {
    waiting?.reject(new Error("Another change came first"));
    waiting = { question, resolve, reject };
    fly();
  });
}

async function fly() {
  if (flying || !waiting) return;
  const { question, resolve, reject } = waiting;
  [flying, waiting] = [true, null];
  try {
    resolve(await worker.ask(question));
  } catch (error) {
    reject(error);
  }
  flying = false;
  fly();
}

// Rounds that are known need no worker: a stroke of the finger plays nothing again.
const known_rounds = { name: "", frames: [] };

function next_frame(state, before) {
  const settings = settings_of(state);
  const name = JSON.stringify(settings);
  if (known_rounds.name !== name) Object.assign(known_rounds, { name, frames: [] });
  const round = (before?.round ?? 0) + 1;
  const { frames } = known_rounds;
  if (frames[round - 1]) return frames[round - 1];
  return ask_latest({ settings, round }).then((frame) => {
    frames[round - 1] = frame;
    return frame;
  });
}

const clusters_of = ({ groups, clients, last, liars }) =>
  [...Array(groups - 1).fill(clients), last, liars].flatMap((size, group) =>
    Array(size).fill(group),
  );

// What the models of a method read in the drawing: [{model, group, guesses:
// [[digit, probability] …]}], group where the model is of one client alone.
function read_drawing({ ink, method }, shown) {
  if (!shown?.models || !ink.some(Boolean)) return [];
  const x = Float64Array.from(ink, (grey) => grey / 16);
  return shown.models.map((theta, j) => {
    const guesses = [...READER.probabilities(theta, x)]
      .map((probability, digit) => [digit, probability])
      .sort(([, one], [, other]) => other - one);
    return { model: j, group: method === "LocalOnly" ? j : null, guesses };
  });
}

function python_of(state) {
  const { method, k, steps, step_size, participation, eps1, eps2, seed, rounds } = state;
  const world = WORLD.map((name) => `${name}=${state[name]}`).join(", ");
  const some = participation < 1 ? `, participation=${participation}` : "";
  const made = {
    FedAvg: `FedAvg(model, local${some})`,
    LocalOnly: "LocalOnly(model, local)",
    OneShot: `OneShot(model, ${k}, alone=cf.LocalSGD(${ALONE}, ${step_size}), local=local${some})`,
    IFCA: `IFCA(model, ${k}, local${some})`,
    CFL: `CFL(model, eps1=${eps1}, eps2=${eps2}, local=local)`,
    FedSoft: `FedSoft(model, ${k}, local, proximal=${PULL})`,
    FedEM: `FedEM(model, ${k}, local${some})`,
  }[method];
  return [
    "import clusterfl_core as cf",
    "from clusterfl_core.live import replay",
    "from clusterfl_core.live.labs.playground import scores",
    "",
    `federation = replay.patchwork(${world})`,
    `model, local = cf.models.MLP(64, 32, 10), cf.LocalSGD(${steps}, ${step_size})`,
    `algorithm = cf.${made}`,
    `run = replay.run(algorithm, federation, ${Math.max(1, rounds)}, seed=${seed})`,
    "print(*scores(run, federation))  # mean, worst client, models moved",
    "",
  ].join("\n");
}

// ---------------------------------------------------------------- pictures

// Squares of 2 by 2 for the pixels of an image, in four greys; a path each.
function add_pixels(paths, x, [left, top]) {
  x.forEach((grey, pixel) => {
    const level = Math.ceil(4 * grey - 0.3) - 1;
    if (level >= 0)
      paths[level].push(
        `M${left + 2 * (pixel % 8)} ${top + 2 * Math.floor(pixel / 8)}h2.02v2.02h-2.02z`,
      );
  });
}

// A row of images for each group, and what it calls them.
function make_samples() {
  const picture = svg("svg", { role: "img", class: "chart" });
  const words = html("figcaption");
  const node = html("figure", {}, words, picture);
  return {
    node,
    show({ groups, angle, swaps, liars }) {
      const images = images_of_page();
      const first = images.y.length - TESTED;
      const chosen = Array.from(
        { length: DRAWN },
        (_, digit) => first + images.y.subarray(first).indexOf(digit),
      );
      const views = views_of({ groups, angle, swaps, seed: 0 });
      const rows = liars ? views : views.slice(0, groups);
      const paths = [[], [], [], []];
      const names = rows.map((view, group) => {
        const { x } = seen_client(images, chosen, view);
        chosen.forEach((_, column) =>
          add_pixels(paths, x.subarray(64 * column, 64 * column + 64), [19 * column, 18 * group]),
        );
        if (group === groups) return `${spoken_mark(group)}, liars: each digit is called one more`;
        const swapped = view.names.flatMap((name, digit) =>
          name > digit ? [`${digit}↔${name}`] : [],
        );
        const how = view.degrees ? `turned by ${digits(view.degrees, 0)}°` : "upright";
        return [`${spoken_mark(group)}: ${how}`, ...swapped].join(", ");
      });
      words.textContent = `What each group sees. ${names.join("; ")}.`;
      picture.setAttribute("viewBox", `-14 0 ${19 * DRAWN + 12} ${18 * rows.length}`);
      picture.setAttribute("aria-label", words.textContent);
      picture.replaceChildren(
        ...paths.map((some, level) =>
          svg("path", { d: some.join(""), fill: "currentColor", opacity: (level + 1) / 4 }),
        ),
        ...rows.map((_, group) =>
          group_mark(group, -7, 18 * group + 8, 3.5, { fill: "currentColor" }),
        ),
      );
    },
  };
}

// The accuracy of all methods over the rounds.
function make_curves(entry, caption) {
  const picture = svg("svg", { role: "img", class: "chart", height: TALL });
  const node = html("figure", {}, html("figcaption", {}, caption), picture);
  let again = () => {};
  new ResizeObserver(() => again()).observe(node);

  function paint(path) {
    const width = Math.max(220, picture.clientWidth || 300);
    const [bottom, right] = [TALL - 20, width - EDGE_RIGHT];
    const most = Math.max(10, path.length);
    const x = (round) => EDGE_LEFT + ((right - EDGE_LEFT) * round) / most;
    const y = (value) => 8 + (bottom - 8) * (1 - value);
    const lines = RIVALS.map((name, at) => ({
      name,
      dash: DASHES[at],
      points: path
        .filter((frame) => !frame[name].failed)
        .map((frame) => [frame.round, frame[name][entry]]),
    })).filter(({ points }) => points.length);
    const ends = lines
      .map((line) => ({ ...line, end: line.points.at(-1) }))
      .sort((one, other) => other.end[1] - one.end[1]);
    let free = 8; // where the next name can stand
    ends.forEach((line, at) => {
      const room = bottom + 4 - LETTERS * (ends.length - 1 - at);
      line.at = Math.min(Math.max(y(line.end[1]) + 4, free), room);
      free = line.at + LETTERS;
    });
    const said = ends.map(({ name, end }) => `${spoken_method(name)} ${digits(100 * end[1], 0)}`);
    picture.setAttribute("viewBox", `0 0 ${width} ${TALL}`);
    picture.setAttribute(
      "aria-label",
      path.length
        ? `${caption}, in percent, after round ${path.length}: ${listed(said)}.`
        : `${caption}: no round played yet.`,
    );
    picture.replaceChildren(
      ...[0, 0.5, 1].flatMap((value) => [
        svg("path", { class: "grid", d: `M${EDGE_LEFT} ${y(value)}H${right}` }),
        svg("text", { x: 0, y: y(value) + 4 }, `${100 * value}%`),
      ]),
      svg("text", { x: right, y: TALL - 4, "text-anchor": "end" }, `round ${most}`),
      ...ends.flatMap(({ name, dash, points, end, at }) => {
        const colour = LOOKS.algorithms[name];
        return [
          svg("polyline", {
            class: "trail",
            stroke: colour,
            "stroke-dasharray": dash,
            points: points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" "),
          }),
          svg("circle", { r: 3, cx: x(end[0]), cy: y(end[1]), fill: colour }),
          svg("text", { x: x(end[0]) + 8, y: at }, spoken_method(name)),
        ];
      }),
    );
  }

  return {
    node,
    show(path) {
      again = () => paint(path);
      again();
    },
  };
}

// All seven in numbers.
function make_results() {
  const body = html("tbody");
  const heads = ["method", "mean", "worst", "moved"].map((word) =>
    html("th", { scope: "col" }, word),
  );
  const node = html(
    "table",
    { class: "results" },
    html("caption", {}, "Accuracy in percent, mean and worst client, and models moved so far"),
    html("thead", {}, html("tr", {}, ...heads)),
    body,
  );
  return {
    node,
    show({ method }, found) {
      body.replaceChildren(
        ...RIVALS.map((name, at) => {
          const shown = found?.[name];
          const line = svg(
            "svg",
            { width: 30, height: 10, viewBox: "0 0 30 10", "aria-hidden": "true" },
            svg("path", {
              d: "M0 5H30",
              class: "trail",
              stroke: LOOKS.algorithms[name],
              "stroke-dasharray": DASHES[at],
            }),
          );
          const number = (value, count) =>
            html("td", {}, value === undefined ? "–" : digits(value, count));
          const cells = shown?.failed
            ? [html("td", { colspan: 3 }, shown.failed)]
            : [
                number(shown && 100 * shown.mean, 1),
                number(shown && 100 * shown.worst, 1),
                number(shown?.moved, 0),
              ];
          const looked = name === method;
          return html(
            "tr",
            { class: looked ? "looked" : null },
            html("th", { scope: "row" }, line, ` ${looked ? "▸ " : ""}${spoken_method(name)}`),
            ...cells,
          );
        }),
      );
    },
  };
}

// What each model reads in the drawing.
function make_answers() {
  const body = html("tbody");
  const words = html("caption");
  const node = html("table", { class: "answers" }, words, body);
  return {
    node,
    show({ method, ink, groups }, { drawn, shown }, clusters) {
      const name = spoken_method(method);
      const why = ink.some(Boolean) ? "Play a round first." : "Nothing is drawn yet.";
      words.textContent = drawn.length
        ? `What the models of ${name} read in the drawing, and how sure they are`
        : `What the models of ${name} read: ${why}`;
      body.replaceChildren(
        ...drawn.map(({ model, group, guesses }) => {
          const [[first, sure], [second, less]] = guesses;
          const followers = Array.from({ length: groups + 1 }, (_, g) => g).filter((g) =>
            group === null
              ? clusters.some((cluster, i) => cluster === g && shown.chosen[i] === model)
              : g === group,
          );
          const swatch = html(
            "span",
            {
              class: "swatch",
              style: `background:${colour_of(model)};color:${ink_on(colour_of(model))}`,
            },
            `${model}`,
          );
          const marks = followers.map((g) =>
            svg(
              "svg",
              {
                width: 16,
                height: 16,
                viewBox: "-8 -8 16 16",
                role: "img",
                "aria-label": `of ${spoken_mark(g)}`,
              },
              group_mark(g, 0, 0, 5.5, { fill: "currentColor" }),
            ),
          );
          return html(
            "tr",
            {},
            html(
              "th",
              { scope: "row" },
              ...(group === null ? ["model ", swatch] : ["a client"]),
              " ",
              ...marks,
            ),
            html("td", {}, html("strong", {}, `${first}`), ` ${digits(100 * sure, 0)} %`),
            html("td", {}, `or ${second}, ${digits(100 * less, 0)} %`),
          );
        }),
      );
    },
  };
}

// Which mission, what it asks, and, folded, why it comes out as it does.
function make_missions(chooser) {
  const ask = html("p");
  const why = html("p");
  const fold = html("details", {}, html("summary", {}, "Why, once you have tried"), why);
  const node = html("section", { class: "mission", "aria-label": "Mission" }, chooser);
  return {
    node,
    show(mission) {
      if ((mission?.ask ?? "") === ask.textContent) return;
      ask.textContent = mission?.ask ?? "";
      ask.remove();
      fold.remove();
      if (!mission) return;
      why.textContent = mission.why;
      fold.open = false;
      node.append(ask, fold);
    },
  };
}

const judged_now = (mission, state, path) =>
  judged_mission(mission, (entry) => TABLE[entry].words, {
    state,
    path: path.slice(1),
    clusters: clusters_of(state),
    drawn: read_drawing({ ...state, method: "IFCA" }, path.at(-1)?.IFCA).map(
      ({ guesses: [first] }) => first,
    ),
  });

laboratory("playground", {
  title: "the playground",
  first: () => null,
  next: next_frame,
  rest: (state) => state.rounds >= TABLE.rounds.high,
  waiting(state, path) {
    if (path.length >= state.rounds) return null;
    const mission = mission_of(state);
    const [, , reached] = mission ? judged_now(mission, state, path) : [];
    const far = reached ? ` So far: ${reached}.` : "";
    const what = mission ? `Mission “${mission.name}” is judged then.${far}` : "";
    return `Playing round ${path.length} of ${state.rounds} … ${what}`.trim();
  },
  compute(state, path) {
    const frame = path.at(-1);
    const shown = frame?.[state.method] ?? null;
    return { frame, shown, drawn: read_drawing(state, shown) };
  },
  told({ method, rounds }, { frame, shown }, path) {
    const round = path.length - 1;
    if (round < rounds) return `Computing round ${round + 1} of ${rounds} …`;
    if (!frame) return "No round played yet. Put clients together, then press Play.";
    const name = spoken_method(method);
    if (shown.failed) return `Round ${round}. ${name} stopped: ${shown.failed}.`;
    const able = RIVALS.filter((one) => !frame[one].failed);
    const best = able.reduce((one, other) => (frame[other].mean > frame[one].mean ? other : one));
    return (
      `Round ${round}: ${name} reads ${digits(100 * shown.mean, 1)} % on average, ` +
      `${digits(100 * shown.worst, 1)} % for the worst client. Best on average: ` +
      `${spoken_method(best)}, ${digits(100 * frame[best].mean, 1)} %.`
    );
  },
  readings({ method }, { shown }) {
    const name = spoken_method(method);
    const value = (entry) => shown?.[entry] ?? null;
    return [
      [`${name}: mean accuracy`, value("mean"), 3],
      [`${name}: worst client`, value("worst"), 3],
      [`${name}: models moved`, value("moved"), 0],
    ];
  },
  python: python_of,
  changes: {
    mission: (key, state) => {
      const mission = mission_of({ mission: key });
      const rounds = mission ? 0 : state.rounds;
      return mission ? { ...mission.setup, method: mission.method, ink: [...BLANK], rounds } : {};
    },
  },
  task(state, _, path, memory) {
    memory.solved ??= new Set();
    const mission = mission_of(state);
    const [sentence, solved] = mission
      ? judged_now(mission, state, path)
      : ["No mission is chosen: all controls are yours.", false];
    if (solved) memory.solved.add(mission.key);
    const before = !solved && memory.solved.has(mission?.key) ? " You have solved it before." : "";
    const count = `${memory.solved.size} of ${GIVEN.missions.length} solved.`;
    return [`${sentence}${before} ${count}`, solved || before !== ""];
  },
  buttons: (lab) => [
    button("10 rounds", () =>
      lab.change({ rounds: Math.min(TABLE.rounds.high, lab.keeping.state.rounds + 10) }),
    ),
  ],
  build(lab) {
    const nodes = {};
    const control = (entry) => (nodes[entry] = lab.control(entry));
    const missions = make_missions(control("mission"));
    const samples = make_samples();
    const curves = [
      make_curves("mean", "Mean accuracy of the clients"),
      make_curves("worst", "Accuracy of the worst client"),
    ];
    const results = make_results();
    const identities = make_identities("Who follows which model of the method looked at");
    const pad = make_pad((ink, begins) => lab.change({ ink }, begins));
    const answers = make_answers();
    const bar = html("progress", { "aria-label": "Rounds computed" });
    const stop = button("Stop", () =>
      lab.act(() => lab.keeping.change({ rounds: lab.keeping.path.length - 1 }, false)),
    );
    const working = html("div", { class: "buttons", hidden: true }, bar, stop);
    const section = (words, ...entries) =>
      html(
        "section",
        { "aria-label": words },
        html("strong", {}, words),
        ...entries.map(control),
      );
    let sample = 0;
    const lent = button("Show a digit", () => {
      const images = images_of_page();
      const at = images.y.length - TESTED + (sample++ % TESTED);
      lab.change({ ink: Array.from(images.x.subarray(64 * at, 64 * at + 64)) });
    });
    const clear = button("Clear", () => lab.change({ ink: [...BLANK] }));
    const draw_samples = once((state) => setTimeout(() => samples.show(state))); // its own task
    const draw_curves = once((path) => curves.forEach((one) => one.show(path)));
    const draw_results = once(results.show);
    const draw_identities = once(identities.show);
    const draw_answers = once(answers.show);
    return {
      main: [missions.node, samples.node, ...curves.map(({ node }) => node), results.node, working],
      side: [
        section("Clients", ...WORLD),
        section("Methods", "k", "steps", "step_size", "participation", "eps1", "eps2", "seed"),
        control("method"),
      ],
      key: SEEN,
      below: [
        identities.node,
        html(
          "section",
          { "aria-label": "Draw a digit" },
          html("strong", {}, "Draw a digit"),
          html(
            "p",
            { class: "key" },
            "With a finger or the mouse; or by keys: arrows walk, Space paints or clears, Shift " +
              "with an arrow paints.",
          ),
          html(
            "div",
            { class: "pair" },
            html(
              "div",
              { class: "panel" },
              pad.node,
              html("div", { class: "buttons" }, lent, clear),
            ),
            answers.node,
          ),
        ),
      ],
      show({ state, found, path, busy }) {
        const mission = mission_of(state);
        const hidden = hides_groups(state);
        missions.show(mission);
        for (const [entry, one] of Object.entries(nodes)) {
          const fixed = mission && entry in mission.setup && !mission.free.includes(entry);
          one.querySelector("input, select").disabled = Boolean(fixed);
          one.classList.toggle("fixed", Boolean(fixed));
          one.hidden = hidden && HIDDEN.includes(entry);
        }
        samples.node.hidden = hidden;
        const { groups, angle, swaps, liars, method } = state;
        if (!hidden) draw_samples([groups, angle, swaps, liars].join(), state);
        lent.hidden = state.mission === "readings";
        const seen = `${JSON.stringify(settings_of(state))} ${path.length} ${hidden}`;
        draw_curves(seen, path.slice(1));
        draw_results(`${seen} ${method}`, state, found.frame);
        const clusters = clusters_of(state).map((group) => (hidden ? 0 : group));
        const chosen = found.shown?.chosen;
        identities.node.hidden = !chosen || method === "LocalOnly";
        if (!identities.node.hidden)
          draw_identities(`${seen} ${method}`, chosen, clusters, found.shown.models.length);
        pad.show(state.ink);
        draw_answers(`${seen} ${method} ${state.ink}`, state, found, clusters);
        const left = state.rounds - (path.length - 1);
        working.hidden = !(busy && left > 1);
        bar.max = state.rounds || 1;
        bar.value = path.length - 1;
      },
    };
  },
});
