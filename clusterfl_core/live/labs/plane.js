// IFCA in the plane: a model is two numbers, so all of it can be seen and moved.

import { as_python, begin, read_description } from "../engine/lab.js";
import { estimate_identities } from "../engine/ifca.js";
import { best } from "../engine/linear.js";
import { scattered } from "../engine/starts.js";
import { button, choice, slider } from "../parts/controls.js";
import { breath, digits, html, kept_number, listed, svg } from "../parts/dom.js";
import { define, make_hold, mark_of } from "../parts/element.js";
import { make_identities } from "../parts/identities.js";
import { make_losses } from "../parts/losses.js";
import { client_mark, colour_of, model_mark, spoken_mark, truth_mark } from "../parts/marks.js";
import { make_player } from "../parts/player.js";
import { Run } from "../parts/run.js";
import { make_sentences } from "../parts/sentences.js";
import { make_sharing } from "../parts/sharing.js";
import { make_starts } from "../parts/starts.js";
import { make_square } from "../parts/square.js";
import { make_task } from "../parts/task.js";

const EDGE = 2.5; // the picture shows models from -2.5 to 2.5
const FAR = 1e4; // where models may begin, outside the picture
const RADIUS = 2; // first models of the 200 starts: anywhere in ±2
const MOST_ROUNDS = 200;
const LIMITS = { groups: 4, models: 6, clients: 12, points: 50, noise: 2, step_size: 4, steps: 20 };
const NEW_TRUTHS = [
  [-1.2, -0.6],
  [1.2, -0.6],
  [0, 1.2],
  [0, -1.9],
];
const NEW_MODELS = [
  [-1.8, 1.8],
  [1.8, 1.8],
  [0, 0],
  [0, -1.8],
  [-1.8, -1.8],
  [1.8, -1.8],
];
const OPTIONS = { gradients: { steps: 1, step_size: 0.9 }, models: { steps: 10, step_size: 0.1 } };
const APART = 1; // true models nearer than this are one group in two
const STILL = 1e-3; // models that move less in a round stand still
const QUIET = 5; // rounds in which nobody changes
const LONG = 30; // rounds after which a run that never rests is judged

const SEEN =
  "Stars: true models. Crosses: the server's models. Small marks: clients, each at its own best " +
  "model; shape: true group, number: the model it chooses. Borders: where a client with many " +
  "points would change its mind.";

// ---------------------------------------------------------------- what a state means

// The model that most clients of each group choose; ties: the lowest.
function chosen_by_groups(identities, clusters) {
  const groups = Math.max(...clusters) + 1;
  return Array.from({ length: groups }, (_, group) => {
    const votes = [];
    identities.forEach((j, i) => {
      if (clusters[i] === group) votes[j] = (votes[j] ?? 0) + 1;
    });
    let most = votes.findIndex((count) => count);
    votes.forEach((count, j) => {
      if (count > votes[most]) most = j;
    });
    return most;
  });
}

// How many clients choose each model.
const sizes_of = (bank, identities) =>
  bank.map((_, j) => identities.filter((one) => one === j).length);

// Pairs of groups that share a model.
function sharing_groups(own) {
  return own.flatMap((model, g) =>
    own
      .slice(g + 1)
      .flatMap((other, step_on) => (other === model ? [[g, g + 1 + step_on, model]] : [])),
  );
}

// Nobody changes and nothing moves any more, or the run is long and never will.
function at_rest(run) {
  const { path, world, algorithm } = run;
  const last = path.length - 1;
  if (last >= MOST_ROUNDS) return true;
  if (algorithm.participation < 1) return last >= LONG;
  if (last < QUIET) return false;
  const moved = path[last].bank.some((theta, j) =>
    theta.some((value, a) => Math.abs(value - path[last - 1].bank[j][a]) >= STILL),
  );
  const named = (state) => estimate_identities(world.model, state.bank, world).join();
  const same = path.slice(last - QUIET).every((state) => named(state) === named(path[last]));
  return (!moved && same) || last >= 3 * LONG;
}

// The part of the square that lies nearer to model j than to any other, cut out border by border.
function nearest_region(bank, j) {
  let corners = [
    [-EDGE, -EDGE],
    [EDGE, -EDGE],
    [EDGE, EDGE],
    [-EDGE, EDGE],
  ];
  bank.forEach((other, i) => {
    if (i === j) return;
    const [a, b] = [other[0] - bank[j][0], other[1] - bank[j][1]];
    if (Math.hypot(a, b) < 1e-9) {
      if (i < j) corners = [];
      return;
    }
    const middle = (a * (other[0] + bank[j][0]) + b * (other[1] + bank[j][1])) / 2;
    const beyond = ([x, y]) => a * x + b * y - middle;
    corners = corners.flatMap((corner, at) => {
      const next = corners[(at + 1) % corners.length];
      const [here, there] = [beyond(corner), beyond(next)];
      const kept_corner = here <= 0 ? [corner] : [];
      if (here > 0 === there > 0) return kept_corner;
      const part = here / (here - there);
      return [
        ...kept_corner,
        [corner[0] + part * (next[0] - corner[0]), corner[1] + part * (next[1] - corner[1])],
      ];
    });
  });
  return corners;
}

// A description from elsewhere, if this laboratory can show it.
function fitting(description) {
  const { world, algorithm, models, rounds } = description;
  const within = (name, value, low, high) => {
    if (typeof value !== "number" || !(value >= low && value <= high)) {
      throw new Error(
        `This laboratory takes ${name} from ${low} to ${high}, not ${JSON.stringify(value)}`,
      );
    }
  };
  if (world.kind !== "linear" || algorithm.name !== "IFCA" || world.truth[0].length !== 2) {
    throw new Error(
      "This laboratory plays IFCA on models of two numbers, and the state is of another one",
    );
  }
  if ((world.features ?? "normal") !== "normal" || world.shares)
    throw new Error("This laboratory has no mixtures and no lines");
  if (!models) throw new Error("The state says not where the models begin");
  within("groups", world.truth.length, 1, LIMITS.groups);
  within("models", algorithm.clusters, 1, LIMITS.models);
  within("clients a group", world.clients, 1, LIMITS.clients);
  within("points a client", world.points, 1, LIMITS.points);
  within("noise", world.noise, 0, LIMITS.noise);
  within("a participation", algorithm.participation, 0.01, 1);
  within("a step size", algorithm.local.step_size, 0.001, LIMITS.step_size);
  within("local steps", algorithm.local.steps, 1, LIMITS.steps);
  within("rounds", rounds, 0, MOST_ROUNDS);
  world.truth.flat().forEach((value) => within("true models", value, -EDGE, EDGE));
  models.flat().forEach((value) => within("models", value, -FAR, FAR));
  return description;
}

// ---------------------------------------------------------------- the plane itself

// The drawing of a run: its name and its marks.
function drawn({ size, at, within, line }, run) {
  const { world, algorithm, state, path } = run;
  const identities = estimate_identities(world.model, state.bank, world);
  const radius = 7.5;
  const grid = [-2, -1, 0, 1, 2].map((v) => {
    const [x, y] = at([v, v]);
    return `M${x} 0V${size}M0 ${y}H${size}`;
  });
  const working = algorithm.participation < 1 ? new Set(algorithm.plan(state).clients) : new Set();
  const label =
    `Plane of models: ${world.truth.length} true models, ${world.clients.length} clients, ` +
    `${state.bank.length} models of the server.`;
  const marks = [
    ...state.bank.map((_, j) =>
      svg("polygon", {
        class: "border",
        fill: colour_of(j),
        points: line(nearest_region(state.bank, j)),
      }),
    ),
    svg("path", { class: "grid", d: grid.join("") }),
    ...[-2, -1, 1, 2].flatMap((v) => [
      svg("text", { x: at([v, 0])[0] + 3, y: size - 4 }, digits(v, 0)),
      svg("text", { x: 4, y: at([0, v])[1] - 3 }, digits(v, 0)),
    ]),
    ...state.bank.map((_, j) =>
      svg("polyline", {
        class: "trail",
        stroke: colour_of(j),
        points: line(path.map((one) => within(one.bank[j]))),
      }),
    ),
    ...world.clients.map((client, i) => {
      const place = at(within(best(client)));
      const mark = client_mark(client.cluster, identities[i], ...place, radius);
      if (working.has(i))
        mark.append(svg("circle", { class: "ring", cx: place[0], cy: place[1], r: radius + 4 }));
      return mark;
    }),
  ];
  return { label, marks };
}

// ---------------------------------------------------------------- the laboratory

// What can be moved in the plane, and what happens then.
function things_in(run, touched) {
  const { description, world, state } = run;
  const replaced = (rows, j, at) => rows.map((row, i) => Array.from(i === j ? at : row, kept_number));
  const truths = world.truth.map((theta, g) => ({
    key: `truth ${g}`,
    name: `true model of group ${spoken_mark(g)}`,
    at: theta,
    draw: (x, y) => truth_mark(g, x, y, 15),
    moved: (at, begins) =>
      touched(() =>
        run.change(
          { world: { ...description.world, truth: replaced(world.truth, g, at) } },
          begins,
        ),
      ),
  }));
  const models = state.bank.map((theta, j) => ({
    key: `model ${j}`,
    name: `model ${j}`,
    at: [...theta],
    draw: (x, y) => model_mark(j, x, y, 11),
    moved: (at, begins) =>
      touched(() => run.change({ models: replaced(state.bank, j, at), rounds: 0 }, begins)),
  }));
  return [...truths, ...models];
}

// The small one: it plays by itself, start after start, while it is seen and motion is welcome.
async function small_laboratory(live, description, element) {
  let run = null;
  let start = 0;
  let pause = 0;
  let rolling = !matchMedia("(prefers-reduced-motion: reduce)").matches; // until the reader acts
  let visible = false;
  const plane = make_square(EDGE, drawn);
  const said = html("p");
  const fresh = () => {
    start += 1;
    const models = scattered(description.algorithm.clusters, 2, RADIUS, description.seed, start);
    run.change({ models: models.map((theta) => [...theta]), rounds: 0 }, false);
  };
  const touched = (act) => {
    rolling = false;
    clearTimeout(pause);
    player.stop();
    act();
  };
  const player = make_player(() => run, {
    rest: at_rest,
    told: () => {
      clearTimeout(pause);
      pause = setTimeout(() => {
        if (!rolling || !visible) return;
        fresh();
        player.start();
      }, 3000);
    },
    back: false,
    more: [button("New start", () => touched(fresh))],
  });
  player.node.addEventListener("click", () => {
    rolling = player.playing;
  });
  live.classList.add("small");
  await breath();
  run = new Run(
    description,
    MOST_ROUNDS,
    (now) => {
      plane.node.classList.toggle("glide", player.playing);
      plane.show(now, things_in(now, touched));
      const own = chosen_by_groups(
        estimate_identities(now.world.model, now.state.bank, now.world),
        now.world.clusters,
      );
      const result = sharing_groups(own).length
        ? "Some groups share a model."
        : "Every group has a model of its own.";
      said.textContent = `Round ${now.path.length - 1}. ${result}`;
      element.busy = now.busy;
    },
    (sentence) => {
      said.textContent = sentence;
    },
  );
  await breath();
  live.append(
    html(
      "div",
      { class: "two" },
      plane.node,
      html("div", { class: "side" }, said, player.node, html("p", { class: "key" }, SEEN)),
    ),
  );
  run.begin();
  const seen = new IntersectionObserver(
    ([entry]) => {
      visible = entry.isIntersecting;
      if (visible && rolling && !player.playing) player.start();
      else if (!visible) player.stop();
    },
    { threshold: 0.4 },
  );
  seen.observe(element);
  return () => {
    seen.disconnect();
    clearTimeout(pause);
    player.stop();
  };
}

async function whole_laboratory(live, description, question, element) {
  let run = null;
  let smallest = Infinity; // noise with which a group was lost
  let lent = null; // the start that was drawn for the reader, as a text
  const sentences = make_sentences();
  const plane = make_square(EDGE, drawn);
  const losses = make_losses();
  const identities = make_identities();
  const task = question ? make_task(question) : null;
  const status = html("p", { class: "state" });
  let failing = false;

  const touched = (act) => {
    player.stop();
    failing = false;
    starts.forget();
    act();
    if (!failing) sentences.say(status.textContent, false);
  };
  const alter = (parts, begins = true) => touched(() => run.change(parts, begins));
  const world = (parts, begins) => alter({ world: { ...run.description.world, ...parts } }, begins);
  const algorithm = (parts, begins) =>
    alter({ algorithm: { ...run.description.algorithm, ...parts } }, begins);
  const local = (parts, begins) =>
    algorithm({ local: { ...run.description.algorithm.local, ...parts } }, begins);

  const player = make_player(() => run, {
    rest: at_rest,
    told: () => {
      if (!failing) sentences.say(status.textContent, false);
    },
  });
  player.node.addEventListener(
    "click",
    () => {
      failing = false;
    },
    { capture: true },
  );
  const starts = make_starts({
    run: () => run,
    radius: RADIUS,
    success: (bank, there) =>
      !sharing_groups(
        chosen_by_groups(estimate_identities(there.model, bank, there), there.clusters),
      ).length,
    load: (models, words) => {
      player.stop();
      const rows = models.map((theta) => [...theta]);
      lent = JSON.stringify(rows);
      run.change({ models: rows, rounds: 0 });
      sentences.say(`The start ${words} is on the table. Press Play. ${status.textContent}`);
    },
    told: (sentence) => sentences.say(sentence, false),
  });
  const sharing = make_sharing({
    describe: () => run.description,
    python: as_python,
    read: (text) => {
      const found = fitting(read_description(text));
      begin(found);
      touched(() => run.change(found));
      return failing ? null : "Loaded.";
    },
    told: (sentence, bad) => (bad ? sentences.warn(sentence) : sentences.say(sentence)),
    heard: (sentence) => sentences.say(sentence, false),
    mark: mark_of(element),
  });

  const grown = (rows, count, more) =>
    [...rows.slice(0, count), ...more.slice(rows.length, count)].map((row) =>
      Array.from(row, kept_number),
    );
  const controls = {
    noise: slider({
      name: "noise",
      low: 0,
      high: LIMITS.noise,
      by: 0.1,
      count: 1,
      changed: (noise, b) => world({ noise }, b),
    }),
    clients: slider({
      name: "clients a group",
      low: 1,
      high: LIMITS.clients,
      by: 1,
      changed: (clients, b) => world({ clients }, b),
    }),
    points: slider({
      name: "points a client",
      low: 1,
      high: LIMITS.points,
      by: 1,
      changed: (points, b) => world({ points }, b),
    }),
    models: slider({
      name: "models k",
      low: 1,
      high: LIMITS.models,
      by: 1,
      changed: (k, b) =>
        alter(
          {
            algorithm: { ...run.description.algorithm, clusters: k },
            models: grown(run.state.bank, k, NEW_MODELS),
            rounds: 0,
          },
          b,
        ),
    }),
    groups: slider({
      name: "groups",
      low: 1,
      high: LIMITS.groups,
      by: 1,
      changed: (count, b) => world({ truth: grown(run.world.truth, count, NEW_TRUTHS) }, b),
    }),
    option: choice({
      name: "option",
      options: [
        ["gradients", "I: one gradient"],
        ["models", "II: local models"],
      ],
      changed: (option) => algorithm({ option, local: OPTIONS[option] }),
    }),
    step_size: slider({
      name: "step size η",
      low: 0.05,
      high: LIMITS.step_size,
      by: 0.05,
      count: 2,
      changed: (step_size, b) => local({ step_size }, b),
    }),
    steps: slider({
      name: "local steps τ",
      low: 1,
      high: LIMITS.steps,
      by: 1,
      changed: (steps, b) => local({ steps }, b),
    }),
    participation: slider({
      name: "participation",
      low: 0.1,
      high: 1,
      by: 0.1,
      count: 1,
      changed: (participation, b) => algorithm({ participation }, b),
    }),
  };
  const deal = button("Deal new points", () =>
    world({ seed: (run.description.world.seed + 1) % 2 ** 32 }),
  );
  const key = html(
    "p",
    { class: "key" },
    SEEN,
    " Drag stars and crosses, or move them with the arrow keys (Shift: far).",
  );
  const pick = (...names) => names.map((name) => controls[name].node);
  const show = (now) => {
    const { description: shown_description, state } = now;
    const found = estimate_identities(now.world.model, state.bank, now.world);
    const own = chosen_by_groups(found, now.world.clusters);
    plane.node.classList.toggle("glide", player.playing);
    plane.show(now, things_in(now, touched));
    identities.show(found, now.world.clusters, state.bank.length);
    losses.show(now.losses);
    player.show(now);
    const { world: about, algorithm: how } = shown_description;
    const values = {
      ...about,
      ...how,
      ...how.local,
      models: how.clusters,
      groups: about.truth.length,
      option: how.option,
    };
    for (const [name, control] of Object.entries(controls)) control.set(values[name]);
    controls.steps.node.hidden = how.option === "gradients";
    status.textContent = told_state(now, found, own);
    element.busy = now.busy;
    if (task && !now.busy) judge(now, own);
  };

  const judge = (now, own) => {
    const { noise } = now.description.world;
    const truth = now.world.truth;
    const near = truth.some((one, g) =>
      truth.slice(g + 1).some((other) => Math.hypot(one[0] - other[0], one[1] - other[1]) < APART),
    );
    const shared = sharing_groups(own);
    const first = estimate_identities(now.world.model, now.path[0].bank, now.world);
    const sizes = sizes_of(now.path[0].bank, first);
    const without = sizes.findIndex((size) => size === 0);
    let flaw = null; // why a loss from this start would not count
    if (without >= 0) flaw = `model ${without} has no client at the start`;
    else if (JSON.stringify(now.description.models) === lent) flaw = "this start was drawn for you";
    const begins =
      sizes.length > 1 ? ` At the start the models have ${listed(sizes)} clients.` : "";
    const counts = flaw ? ` But ${flaw}: that would not count.` : begins;
    let sentence = `Not yet lost.${counts} Play until the models rest.`;
    if (now.state.bank.length < truth.length)
      sentence = "With fewer models than groups a group is always lost: that does not count.";
    else if (truth.length < 2) sentence = "One group alone cannot be lost.";
    else if (near)
      sentence = `Keep the true models at least ${APART} apart, else two groups are one.`;
    else if (!at_rest(now))
      sentence =
        shared.length && now.path.length > 1
          ? `Two groups share a model now.${flaw ? counts : " Does it last? Play on."}`
          : sentence;
    else if (shared.length && flaw)
      sentence = `Lost with noise ${digits(noise, 1)}, but ${flaw}: that does not count.`;
    else if (shared.length) {
      if (!hold.down) smallest = Math.min(smallest, noise);
      const [g, h, model] = shared[0];
      const names = `${spoken_mark(g)} and ${spoken_mark(h)}`;
      sentence = `Lost with noise ${digits(noise, 1)}: the groups ${names} share model ${model}.`;
    } else
      sentence =
        "The models rest, and every group has its own. " +
        (noise ? "Change the start, the data or the noise." : "Move the start or the true models.");
    const record =
      smallest === Infinity
        ? ""
        : smallest === 0
          ? " Solved: you lost a group without any noise."
          : ` Your smallest noise: ${digits(smallest, 1)}. Can you do it with less?`;
    const lost = smallest === Infinity ? null : "lost";
    task.show(smallest === 0 ? record.trim() : sentence + record, smallest === 0, lost);
  };

  const hold = make_hold(live, () => show(run));
  await breath();
  run = new Run(description, MOST_ROUNDS, show, (sentence) => {
    failing = true;
    player.stop();
    sentences.warn(sentence);
  });
  await breath();
  live.append(
    ...(task ? [task.node] : []),
    html(
      "div",
      { class: "two" },
      html("div", { class: "side" }, plane.node, player.node, status, sentences.node),
      html(
        "div",
        { class: "side" },
        ...pick("noise", "clients", "points", "models"),
        html(
          "details",
          {},
          html("summary", {}, "More settings"),
          ...pick("groups", "option", "step_size", "steps", "participation"),
          html("div", { class: "buttons" }, deal),
        ),
        identities.node,
        losses.node,
      ),
    ),
    key,
    starts.node,
    sharing.node,
  );
  run.begin();
  sentences.say(status.textContent, false);
  sharing.arrive();
  const arrived = () => sharing.arrive();
  addEventListener("hashchange", arrived);
  return () => {
    removeEventListener("hashchange", arrived);
    hold.stop();
    player.stop();
    starts.forget();
  };
}

// Round, choices and groups in two sentences.
function told_state(run, identities, own) {
  const sizes = sizes_of(run.state.bank, identities);
  const shared = sharing_groups(own);
  const right = run.world.clusters.filter((group, i) => identities[i] === own[group]).length;
  const pairs = shared.map(
    ([g, h, model]) => `the groups ${spoken_mark(g)} and ${spoken_mark(h)} share model ${model}`,
  );
  const all = `every group has a model of its own, and ${right} of ${identities.length} clients`;
  const groups = pairs.length ? listed(pairs) : `${all} choose theirs`;
  const chosen =
    sizes.length > 1
      ? `Models ${listed(sizes.map((_, j) => j))} are chosen by ${listed(sizes)} clients`
      : "All choose the one model";
  return `Round ${run.path.length - 1}. ${chosen}; ${groups}.`;
}

define("plane", "IFCA in the plane", (live, { description, small, task }, element) =>
  small
    ? small_laboratory(live, description, element)
    : whole_laboratory(live, description, task, element),
);
