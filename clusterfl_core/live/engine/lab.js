// A DESCRIPTION is all that a laboratory's run depends on, as plain JSON:
//
//     {world: {kind, …settings}, algorithm: {name, …settings}, seed, models, rounds, absent}
//
// From it the run is begun, shared by address and copied as Python. models: the first models, or
// null to draw them; absent: {round, from 0: [clients that do not answer in it]}.

import { known, one_of, shown, whole } from "./check.js";
import { ALGORITHMS, WORLDS } from "./kinds.js";
import { MOST } from "./linear.js";
import { step } from "./loop.js";
import { LocalSGD } from "./solvers.js";

const SOLVERS = ["local", "alone", "tune"]; // settings that say what a client does in a round

// A world depends on its settings alone and is never changed: a reader who drags a model does not
// wait for the same points again.
const worlds = new WeakMap();

// The world and its model; without images a world of digits is checked but not made.
function make_world(given, images) {
  const kept = worlds.get(given ?? worlds);
  if (kept?.images === images) return kept.made;
  const made = new_world(given, images);
  worlds.set(given, { images, made });
  return made;
}

function new_world(given, images) {
  const { kind, ...settings } = given ?? {};
  one_of("the kind of world", kind, Object.keys(WORLDS));
  return WORLDS[kind](settings, images);
}

function make_algorithm(given, model) {
  const { name, ...settings } = given ?? {};
  one_of("the algorithm", name, Object.keys(ALGORITHMS));
  for (const solver of SOLVERS) {
    if (Object.hasOwn(settings, solver)) settings[solver] = LocalSGD(settings[solver]);
  }
  if (Object.hasOwn(settings, "model"))
    throw new Error(`${name} has no setting "model" here: the world brings it`);
  return ALGORITHMS[name]({ ...settings, model });
}

// A description whose every part was read, with its world (null without images) and algorithm.
function described(description, images = null) {
  const found = known("the laboratory", description, {
    world: undefined,
    algorithm: undefined,
    seed: 0,
    models: null,
    rounds: 0,
    absent: {},
  });
  whole("seed", found.seed, 0, 2 ** 32 - 1);
  whole("rounds", found.rounds, 0, MOST.rounds);
  const { world, model } = make_world(found.world, images);
  const algorithm = make_algorithm(found.algorithm, model);
  known("absent", found.absent, found.absent);
  Object.keys(found.absent).forEach((round) => {
    whole("absent", Number(round), 0, MOST.rounds);
    absent_in(found, Number(round), world);
  });
  const state = world === null ? null : algorithm.init(world, found.seed, found.models);
  return { found, run: { world, algorithm, state } };
}

function absent_in({ absent = {} }, round, world) {
  const ids = Object.hasOwn(absent, round) ? absent[round] : [];
  if (!Array.isArray(ids)) throw new Error(`absent must list clients, got ${shown(ids)}`);
  return ids.map((i) => whole("absent", i, 0, (world?.counts.length ?? MOST.clients) - 1));
}

// The world, the algorithm and the first state; images (unpack_digits) for a world of digits.
export function begin(description, images = null) {
  const { run } = described(description, images);
  if (run.world === null) throw new Error("a world of digits needs its images");
  return run;
}

// One round of a described run.
export function next_round(description, { world, algorithm, state }) {
  const absent = absent_in(description, state.round, world);
  return { world, algorithm, state: step(algorithm, world, state, { absent }) };
}

// The same after all rounds of the description.
export function played(description, images = null) {
  let run = begin(description, images);
  while (run.state.round < (description.rounds ?? 0)) run = next_round(description, run);
  return run;
}

// A description out of a text, or one sentence about what is wrong with it.
export function read_description(text, images = null) {
  if (typeof text !== "string" || text.length > 1e6)
    throw new Error("the text of a laboratory is too long");
  let description;
  try {
    description = JSON.parse(text);
  } catch {
    throw new Error("the text of a laboratory cannot be read");
  }
  return described(description, images).found;
}

// ---------------------------------------------------------------- copy as Python

function python(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "number")
    return Object.is(value, -0) ? "-0.0" : String(value).replace("Infinity", "float('inf')");
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value) || ArrayBuffer.isView(value))
    return `[${Array.from(value, python).join(", ")}]`;
  return `{${Object.entries(value)
    .map(([name, one]) => `${Number(name)}: ${python(one)}`)
    .join(", ")}}`;
}

const arguments_of = (settings) =>
  Object.entries(settings).map(([name, value]) => `${name}=${python(value)}`);

function python_world({ kind, ...settings }) {
  if (kind !== "points")
    return `replay.${kind}(${arguments_of(settings)
      .filter((one) => !one.startsWith("hidden="))
      .join(", ")})`;
  const clients = settings.clients.map(({ x, y }) => `    (${python(x)}, ${python(y)}),\n`);
  return `replay.points([\n${clients.join("")}], clusters=${python(settings.clients.map(({ cluster = 0 }) => cluster))})`;
}

function python_algorithm({ name, starts, ...settings }, model) {
  const words = Object.entries(settings).map(([key, value]) =>
    SOLVERS.includes(key)
      ? `${key}=cf.LocalSGD(${arguments_of(value).join(", ")})`
      : `${key}=${python(value)}`,
  );
  if (Number.isInteger(starts)) words.push(`starts=${starts}`);
  return `cf.${name}(${[model, ...words].join(", ")})`;
}

// A few lines of Python that give the run of a description, made with the library. Before the first
// round they play one. `ends`: the last lines instead of those that print models and choices.
export function as_python(description, ends = null) {
  const { found, run } = described(description);
  const { world, algorithm, seed, models, rounds, absent } = found;
  const { name, starts, ...settings } = algorithm;
  const model =
    world.kind === "digits"
      ? `cf.models.MLP(64, ${world.hidden ?? 32}, 10)`
      : `cf.models.LinearRegression(${run.world.model.size})`;
  const told = [`rounds=${Math.max(1, rounds)}`, `seed=${seed}`];
  if (models !== null) told.push(`models=${python(models)}`);
  if (Object.keys(absent).length) told.push(`absent=${python(absent)}`);
  if (Array.isArray(starts)) told.push(`starts=${python(starts)}`);
  const lines = [
    "from clusterfl_core.live import replay",
    "",
    `federation = ${python_world(world)}`,
  ];
  if (name === "EM") {
    lines.push(
      `models, shares, q = replay.em(federation, ${[...arguments_of(settings), ...told].join(", ")})`,
      "print(models, q)",
    );
  } else {
    lines.unshift("import clusterfl_core as cf");
    lines.push(
      `settings = ${python_algorithm(algorithm, model)}`,
      `run = replay.run(settings, federation, ${told.join(", ")})`,
    );
    lines.push(...(ends ?? ["print(run.assignments)", "print(run.models.flatten())"]));
  }
  return `${lines.join("\n")}\n`;
}
