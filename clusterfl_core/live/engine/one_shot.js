// OneShot clusters local models once, then averages within the clusters (Ghosh et al., 2020,
// extended version, Algorithm 1). Without a number of clusters it asks how many there are, and whether
// there is more than one at all. Python: algorithms/one_shot.py

import { among, known, number, share, shown, truthful, whole } from "./check.js";
import { first_models, group_means, make_jobs, next_state, participants } from "./contract.js";
import { train_from } from "./fedavg.js";
import { groups_among } from "./grouping.js";
import { ALGORITHMS } from "./kinds.js";
import { range, stream } from "./random.js";
import { LocalSGD } from "./solvers.js";

const CROWD = 100; // clients, at most, of whom a page asks how many groups they are

const squared_distance = (one, other) =>
  one.reduce((sum, value, a) => sum + (value - other[a]) ** 2, 0);

// k-means from given first centers (Lloyd, 1982), until no row changes its cluster. A center that
// nobody is nearest to takes the row farthest from its own center, as scikit-learn does.
//
// Returns {centers, found: [cluster of each row], inertia: sum of squared distances, path:
// [centers]}.
export function k_means(rows, first, most = 300) {
  let centers = first.map((center) => Float64Array.from(center));
  let found = null;
  const path = [centers];
  const nearest = () =>
    rows.map((row) => {
      const apart = centers.map((center) => squared_distance(row, center));
      return apart.indexOf(Math.min(...apart));
    });
  for (let step = 0; step < most; step++) {
    const before = found;
    found = nearest();
    if (before !== null && found.every((j, i) => j === before[i])) break;
    const members = [...found];
    const far = range(rows.length).sort(
      (a, b) =>
        squared_distance(rows[b], centers[found[b]]) - squared_distance(rows[a], centers[found[a]]),
    );
    range(centers.length)
      .filter((j) => !found.includes(j))
      .forEach((j, place) => {
        members[far[place]] = j;
      });
    centers = group_means(centers, rows, members);
    path.push(centers);
  }
  const inertia = rows.reduce((sum, row, i) => sum + squared_distance(row, centers[found[i]]), 0);
  return { centers, found, inertia, path };
}

export function OneShot(given) {
  const settings = known("OneShot", given, {
    model: undefined,
    clusters: null,
    alone: LocalSGD(),
    local: LocalSGD(),
    participation: 1,
    weighted: true,
    starts: 10,
    excess: 0.07,
    recursive: false,
  });
  const { model, clusters, alone, local, participation, weighted, starts } = settings;
  const { excess, recursive } = settings;
  if (clusters !== null) whole("clusters", clusters, 1, 20);
  number("excess", excess, "[0, 2)");
  truthful("recursive", recursive);
  share("participation", participation);
  truthful("weighted", weighted);
  if (!Array.isArray(starts)) whole("starts", starts, 1, 100);

  // Which local models are the first centers, for each start: those told, or k at random.
  function first_centers(seed, count) {
    if (!Array.isArray(starts)) {
      return range(starts).map((s) =>
        stream(seed, "starts", s).shuffle(range(count)).slice(0, clusters),
      );
    }
    starts.forEach((start) => {
      const rows = Array.isArray(start) ? new Set(start) : new Set();
      const there = [...rows].every((row) => Number.isInteger(row) && row >= 0 && row < count);
      if (rows.size !== clusters || start.length !== clusters || !there) {
        throw new Error(
          `starts must each name ${clusters} of the ${count} local models, got ${shown(start)}`,
        );
      }
    });
    return starts;
  }

  // Cluster of each local model: the best of several runs of k-means (line 2), or the groups that stand
  // out; -1 for a model that is not finite.
  function cluster(rows, seed) {
    const sound = range(rows.length).filter((i) => rows[i].every(Number.isFinite));
    const groups = rows.map(() => -1);
    if (clusters === null) {
      const points = sound.map((i) => rows[i]);
      groups_among(points, seed, excess, recursive).forEach((j, row) => {
        groups[sound[row]] = j;
      });
      return groups;
    }
    if (rows.length < clusters) {
      throw new Error(
        `clusters must be at most the ${rows.length} clients that sent a local model, got ${clusters}`,
      );
    }
    if (sound.length < clusters) return groups;
    const points = sound.map((i) => rows[i]);
    let best_run = null;
    for (const start of first_centers(seed, points.length)) {
      const run = k_means(
        points,
        start.map((row) => points[row]),
      );
      // By more than rounding, or two starts that end alike would be told apart by it.
      if (best_run === null || run.inertia < best_run.inertia * (1 - 1e-9)) best_run = run;
    }
    sound.forEach((i, row) => {
      groups[i] = best_run.found[row];
    });
    return groups;
  }

  return Object.freeze({
    ...settings,
    name: "OneShot",
    cluster,

    // One fresh model, k times: local models that began apart would not be comparable
    init(world, seed, models = null) {
      const m = world.counts.length;
      among("clusters", clusters, m);
      if (clusters === null && m > CROWD)
        throw new Error(`clients must be at most ${CROWD} where no clusters are told, got ${m}`);
      const [one] = first_models(model, 1, seed, models);
      return Object.freeze({
        seed,
        round: 0,
        bank: range(clusters ?? 1).map(() => one),
        assignments: Array(m).fill(-1),
        counts: world.counts,
      });
    },

    // Server: the fresh model goes to all; later its cluster's model to each participant
    plan(state) {
      const m = state.counts.length;
      if (state.round === 0)
        return make_jobs(
          state,
          range(m),
          range(m).map(() => [0]),
        );
      const ids = participants([state.seed, state.round], m, participation);
      return make_jobs(
        state,
        ids.filter((i) => state.assignments[i] >= 0),
      );
    },

    // Clients: train the model they got. The loss they report is the one they started from, but in
    // round 1 the one they reached.
    client_step(jobs, world) {
      const sent = jobs.models.map(([row]) => jobs.bank[row]);
      if (jobs.round > 0) return train_from(model, sent, local, jobs, world);
      const { clients, bank } = train_from(model, sent, alone, jobs, world); // line 1
      return {
        clients,
        bank,
        values: { loss: clients.map((i, row) => model.loss(bank[row], world.clients[i])) },
      };
    },

    // Server: cluster in round 1 (line 2); average within the clusters in every round (line 3)
    absorb(state, replies) {
      const assignments = [...state.assignments];
      let before = state.bank;
      if (state.round === 0) {
        cluster(replies.bank, state.seed).forEach((j, row) => {
          assignments[replies.clients[row]] = j;
        });
        before = range(clusters ?? Math.max(1, Math.max(...assignments) + 1)).map(() => before[0]);
      }
      const rows = range(replies.clients.length).filter(
        (row) => assignments[replies.clients[row]] >= 0,
      );
      const ids = rows.map((row) => replies.clients[row]);
      const weights = ids.map((i) => (weighted ? state.counts[i] : 1));
      const bank = group_means(
        before,
        rows.map((row) => replies.bank[row]),
        ids.map((i) => assignments[i]),
        weights,
      );
      return next_state(state, { bank, assignments });
    },
  });
}

ALGORITHMS.OneShot = OneShot;
