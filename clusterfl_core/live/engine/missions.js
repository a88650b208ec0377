// The playground's missions: what is reached, in a sentence, and whether it is what was asked.

import { range } from "./random.js";
import { RIVALS } from "./rivals.js";

const [SETTLED, ENOUGH, SHARED] = [10, 150, 0.5]; // rounds, models moved, share of a group
const [LITTLE, LARGE, SQUARES] = [0.02, 0.05, 6];
const percent = (value) => `${(100 * value).toFixed(1)} %`;
export const spoken_method = (name) => ({ LocalOnly: "alone", OneShot: "one-shot" })[name] ?? name;

const best_but = (without, frame) =>
  RIVALS.filter((name) => !without.includes(name)).reduce((one, other) =>
    frame[other].mean > frame[one].mean ? other : one,
  );

// The clients of each group (liars last), and those of them that follow each model.
function followers(clusters, chosen) {
  return range(Math.max(...clusters) + 1).map((group) => {
    const own = range(clusters.length).filter((i) => clusters[i] === group);
    const of_model = new Map();
    own.forEach((i) => of_model.set(chosen[i], (of_model.get(chosen[i]) ?? 0) + 1));
    return { size: own.length, of_model };
  });
}

// Each judges a frame of round 10 or later. asked: {state, frame, path, clusters, drawn: what each
// of IFCA's models reads, [digit, probability] …} → [what is reached, whether it is enough].
const JUDGES = {
  find({ state, frame, clusters }) {
    const groups = followers(clusters, frame.IFCA.chosen);
    const own = groups.map(({ of_model }) => [...of_model.keys()]);
    const whole_groups = own.every((models) => models.length === 1);
    const used = new Set(own.flat()).size;
    const right = whole_groups && used === groups.length && used === state.k;
    const left = state.k - used;
    const wrong = left
      ? `${left} of the models ${left > 1 ? "are" : "is"} left over`
      : "every model is followed, but some are shared or some groups torn";
    return [
      right ? `${state.k} groups, ${state.k} models` : `with k = ${state.k}, ${wrong}`,
      right,
    ];
  },

  start({ frame, clusters }) {
    const groups = followers(clusters, frame.IFCA.chosen);
    const homes = groups.map(({ size, of_model }) =>
      [...of_model.keys()].find((model) => of_model.get(model) > SHARED * size),
    );
    const shared = homes.find((home, g) => home !== undefined && homes.indexOf(home) !== g);
    return shared === undefined
      ? ["no two groups have most of their clients on one model", false]
      : [`model ${shared} has most of two groups`, true];
  },

  together({ state, frame }) {
    const best = best_but(["FedAvg", "CFL"], frame);
    const lead = frame.FedAvg.mean - frame[best].mean;
    const words =
      `one model for all reads ${percent(frame.FedAvg.mean)}, ` +
      `the best of the others, ${spoken_method(best)}, ${percent(frame[best].mean)}`;
    if (state.angle < 15) return [`${words}, but the groups differ by ${state.angle}° only`, false];
    return [words, lead >= LARGE];
  },

  alone({ frame }) {
    const best = best_but(["LocalOnly"], frame);
    const [own, other] = [frame.LocalOnly.mean, frame[best].mean];
    const lead = own - other;
    const by = `${(100 * Math.abs(lead)).toFixed(1)} points ${lead < 0 ? "behind" : "ahead"}`;
    const asked = [
      ...(lead < LITTLE ? [`${100 * LITTLE} points ahead`] : []),
      ...(own < 0.8 ? [`${percent(0.8)} alone`] : []),
    ];
    return [
      `alone ${percent(own)}, the best of the others, ${spoken_method(best)}, ${percent(other)}: ${by}` +
        (asked.length ? `, where ${asked.join(" and ")} are asked` : ""),
      !asked.length,
    ];
  },

  budget({ path }) {
    const paid = path.filter((frame) => frame.IFCA.moved <= ENOUGH);
    if (!paid.length) return [`one round already moves ${path[0].IFCA.moved} models`, false];
    const best = paid.reduce((one, other) => (other.IFCA.mean > one.IFCA.mean ? other : one));
    return [
      `${percent(best.IFCA.mean)} after ${best.IFCA.moved} models, in round ${best.round}`,
      best.IFCA.mean >= 0.9,
    ];
  },

  liars({ state, frame, clusters }) {
    const groups = followers(clusters, frame.IFCA.chosen);
    const lied = [...groups[state.groups].of_model.keys()];
    const mixed = lied.filter((model) =>
      groups.slice(0, state.groups).some(({ of_model }) => of_model.has(model)),
    );
    const words = mixed.length
      ? `liars share model ${mixed.join(" and ")} with honest clients`
      : "the liars are among themselves";
    const worst = frame.IFCA.worst;
    return [
      `${words}; the worst honest client reads ${percent(worst)}`,
      !mixed.length && worst >= 0.85,
    ];
  },

  readings({ state, drawn }) {
    if (state.ink.filter(Boolean).length < SQUARES) return ["hardly anything is drawn yet", false];
    const sure = drawn.filter(([, probability]) => probability >= 0.8).map(([digit]) => digit);
    const all = drawn.map(([digit, probability]) => `${digit} (${percent(probability)})`);
    return [`the models read ${all.join(" and ")}`, new Set(sure).size > 1];
  },

  starve({ state, frame, clusters }) {
    const last = frame.IFCA.each.filter((_, i) => clusters[i] === state.groups - 1);
    const most = Math.max(...last);
    return [
      `IFCA's mean is ${percent(frame.IFCA.mean)}, ` +
        `the best of the last group reads ${percent(most)}`,
      frame.IFCA.mean >= 0.85 && most <= 0.6,
    ];
  },
};

// A mission is {key, setup: entries of the state, free: those of them that may change}.
// → [sentence, whether it is solved, what is reached so far if anything is]
export function judged_mission({ key, setup, free }, words, asked) {
  const { state, path } = asked;
  const moved = Object.keys(setup).find(
    (entry) => !free.includes(entry) && state[entry] !== setup[entry],
  );
  if (moved) return [`This mission keeps “${words(moved)}” at ${setup[moved]}.`, false];
  const early = path.length < SETTLED && key !== "budget";
  const rule = `Judged from round ${SETTLED} on; this is round ${path.length}.`;
  if (!path.length) return [rule, false];
  const frame = path.at(-1);
  const failed = RIVALS.find((name) => frame[name].failed);
  if (failed) return [`${failed} stopped: ${frame[failed].failed}.`, false];
  const [reached, solved] = JUDGES[key]({ ...asked, frame });
  if (early) return [`So far: ${reached}. ${rule}`, false, reached];
  return [`${solved ? "Solved: " : "Not yet: "}${reached}.`, solved, reached];
}
