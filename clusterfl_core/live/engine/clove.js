// CLoVE clusters the clients' VECTORS of losses, where IFCA takes each client's lowest loss (Bhatia,
// Papadis, Kodialam, Lakshman, Chakrabarty; 2026). Python: algorithms/clove.py
//
// A round has two trips: each client says its losses under all models, and the server clusters these
// vectors and gives each cluster one model, at the least total loss; then each client trains the model
// that it was given, and models are averaged within clusters with weights n_i.

import { among, known, one_of, share, truthful, whole } from "./check.js";
import { first_models, group_means, make_jobs, next_state, participants } from "./contract.js";
import { train_from } from "./fedavg.js";
import { cuts } from "./grouping.js";
import { lowest } from "./ifca.js";
import { ALGORITHMS } from "./kinds.js";
import { k_means } from "./one_shot.js";
import { range, stream } from "./random.js";
import { best_matching } from "./solve.js";
import { LocalSGD } from "./solvers.js";

// The number of clusters: Ward's tree is cut into 2, 3, … groups, below n; a number is taken if its
// silhouette exceeds 1.1 times that of the one taken before.
export function chosen_number(rows, most) {
  let [count, score] = [2, -1];
  cuts(rows, Math.min(most, rows.length - 1)).scores.forEach((now, place) => {
    if (now > 1.1 * score) [count, score] = [place + 2, now];
  });
  return count;
}

// The model of each client once each cluster has one: the least total of the clusters' summed losses.
export function matched_models(labels, vectors) {
  const table = range(Math.max(...labels) + 1).map((label) =>
    range(vectors[0].length).map((j) =>
      vectors.reduce((sum, row, i) => (labels[i] === label ? sum - row[j] : sum), 0),
    ),
  );
  const model = best_matching(table);
  return labels.map((label) => model[label]);
}

export function CLoVE(given) {
  const settings = known("CLoVE", given, {
    model: undefined,
    clusters: undefined,
    local: LocalSGD(),
    participation: 1,
    first: "losses",
    starts: 1,
    search: false,
    square_root: false,
    patience: null,
  });
  const { model, clusters, local, participation, first, starts } = settings;
  const { search, square_root, patience } = settings;
  whole("clusters", clusters, 1, 12);
  share("participation", participation);
  one_of("first", first, ["losses", "random"]);
  whole("starts", starts, 1, 100);
  truthful("search", search);
  truthful("square_root", square_root);
  if (patience !== null) whole("patience", patience);

  const taking_part = (state) =>
    participants([state.seed, state.round], state.counts.length, participation);

  // Who says its losses in the coming trip: nobody once the losses are in; once assignments are settled,
  // only who has none.
  function lookers(state) {
    if (state.told) return [];
    const ids = taking_part(state);
    return state.stable ? ids.filter((i) => state.assignments[i] < 0) : ids;
  }

  // Cluster of each loss vector: the best of several runs of k-means, which begin with different rows of
  // the shared generator.
  function cluster(vectors, seed) {
    const rows = square_root ? vectors.map((row) => row.map(Math.sqrt)) : vectors;
    const texts = rows.map((row) => row.join());
    const different = range(rows.length).filter((i) => texts.indexOf(texts[i]) === i);
    const wanted = search ? chosen_number(rows, clusters) : clusters;
    const count = Math.min(wanted, different.length);
    let best_run = null;
    for (let s = 0; s < starts; s++) {
      const order = stream(seed, "starts", s).shuffle([...different]);
      const run = k_means(
        rows,
        order.slice(0, count).map((i) => rows[i]),
      );
      if (best_run === null || run.inertia < best_run.inertia * (1 - 1e-9)) best_run = run;
    }
    const names = [...new Set(best_run.found)].sort((a, b) => a - b);
    return best_run.found.map((j) => names.indexOf(j));
  }

  // Models dealt to n clients by chance, none left out where there are clients enough.
  function dealt_models(n, seed) {
    const source = stream(seed, "dealt");
    const found = range(n).map(() => source.integer(clusters));
    const who = source.shuffle(range(n)).slice(0, clusters);
    const dealt_to = source.shuffle(range(clusters));
    who.forEach((i, place) => {
      found[i] = dealt_to[place];
    });
    return found;
  }

  // The state once each client that said its losses has a model.
  function assigned(state, replies) {
    const vectors = replies.values.losses;
    let { found } = state;
    let given_models;
    if (state.stable || !vectors.every((row) => row.every(Number.isFinite))) {
      given_models = vectors.map(lowest);
    } else if (state.round === 0 && first === "random") {
      given_models = dealt_models(vectors.length, state.seed);
    } else {
      const labels = cluster(vectors, state.seed);
      given_models = matched_models(labels, vectors);
      found = Math.max(...labels) + 1;
    }
    const [assignments, same] = [[...state.assignments], [...state.same]];
    replies.clients.forEach((i, row) => {
      same[i] = assignments[i] === given_models[row] ? same[i] + 1 : 1;
      assignments[i] = given_models[row];
    });
    const settled =
      patience !== null && same.every((rounds, i) => assignments[i] < 0 || rounds >= patience);
    return Object.freeze({
      ...state,
      assignments,
      same,
      told: true,
      stable: state.stable || settled,
      found,
    });
  }

  return Object.freeze({
    ...settings,
    name: "CLoVE",
    cluster,

    // K models; nobody is assigned, unless there is one model only
    init(world, seed, models = null) {
      const m = world.counts.length;
      among("clusters", clusters, m);
      return Object.freeze({
        seed,
        round: 0,
        bank: first_models(model, clusters, seed, models),
        assignments: Array(m).fill(clusters === 1 ? 0 : -1),
        counts: world.counts,
        same: Array(m).fill(0),
        told: false,
        stable: clusters === 1,
        found: 0,
      });
    },

    // Server: all K models to those who look, then to each client that takes part its own
    plan(state) {
      const look = lookers(state);
      if (look.length)
        return make_jobs(
          state,
          look,
          look.map(() => range(clusters)),
        );
      return make_jobs(
        state,
        taking_part(state).filter((i) => state.assignments[i] >= 0),
      );
    },

    // Clients: say the losses of all models, or train the one they were given
    client_step(jobs, world) {
      const looks = jobs.models.some((rows) => rows.length > 1);
      if (looks) {
        const losses = jobs.clients.map((i) =>
          jobs.bank.map((theta) => model.loss(theta, world.clients[i])),
        );
        return { clients: jobs.clients, bank: null, values: { losses } };
      }
      return train_from(
        model,
        jobs.models.map(([row]) => jobs.bank[row]),
        local,
        jobs,
        world,
      );
    },

    // Server: cluster the vectors and match the clusters, or average within the clusters. A model without
    // clients keeps its parameters.
    absorb(state, replies) {
      if (lookers(state).length) return assigned(state, replies);
      const bank = group_means(
        state.bank,
        replies.bank,
        replies.clients.map((i) => state.assignments[i]),
        replies.clients.map((i) => state.counts[i]),
      );
      return next_state(state, { bank, told: false });
    },
  });
}

ALGORITHMS.CLoVE = CLoVE;
