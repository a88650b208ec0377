// CFL, clustered federated learning (Sattler, Müller, Samek; 2019). Python: algorithms/cfl.py
//
// All clients first train one model. Where it has come to rest but their updates still disagree,
// the server splits them in two by the cosine similarity of the updates; each half goes on by
// itself. The splits form a tree; its leaves are the clusters. One round of all leaves is Algorithm
// 5.

import { known, number, one_of } from "./check.js";
import { first_models, make_jobs, minus, next_state, norm, plus } from "./contract.js";
import { ALGORITHMS } from "./kinds.js";
import { range } from "./random.js";
import { cosine_similarity, cross_similarity, optimal_bipartition } from "./similarity.js";
import { LocalSGD } from "./solvers.js";

// The mean update of a cluster, sum_i |D_i| / |D_c| Delta theta_i (Algorithm 2, line 7).
export function weighted_mean(updates, counts) {
  const whole_count = counts.reduce((sum, one) => sum + one, 0);
  const mean = new Float64Array(updates[0].length);
  updates.forEach((update, i) => {
    const weight = counts[i] / whole_count;
    for (let a = 0; a < mean.length; a++) mean[a] += weight * update[a];
  });
  return mean;
}

// For an update made at theta*_v, the child of v with the more similar one: the larger of alpha_0
// and alpha_1, the largest similarity to an update kept on either edge; ties go to the second child
// (Algorithm 4, lines 4 to 12).
export function nearer_child(tree, v, update) {
  const [first, second] = tree[v].children;
  const [alpha_0, alpha_1] = [first, second].map((child) =>
    Math.max(...cosine_similarity([update, ...tree[child].updates])[0].slice(1)),
  );
  return alpha_0 > alpha_1 ? first : second;
}

// A node whose cluster, and the edge to it, one more client has joined.
function joined_node(node, client, update) {
  const rows = [...node.clients.map((i, row) => [i, node.updates[row]]), [client, update]];
  rows.sort(([a], [b]) => a - b);
  return { ...node, clients: rows.map(([i]) => i), updates: rows.map(([, sent]) => sent) };
}

export function CFL(given) {
  const settings = known("CFL", given, {
    model: undefined,
    eps1: undefined,
    eps2: undefined,
    gamma_max: 0,
    local: LocalSGD(),
    similarity: "updates",
    quorum: 1,
  });
  const { model, eps1, eps2, gamma_max, local, similarity, quorum } = settings;
  number("eps1", eps1, "(0, inf]", "be positive");
  number("eps2", eps2, "(0, inf]", "be positive");
  number("gamma_max", gamma_max, "[0, 1)");
  number("quorum", quorum, "(0, 1]");
  one_of("similarity", similarity, ["updates", "gradients"]);

  // Delta theta_i = SGD(theta, D_i) - theta (1)
  const update = (start, client) => minus(local.train(model, start, client), start);

  // Whether a cluster splits, and how (Algorithm 5, lines 14 to 18), with what the tests saw: near
  // a stationary point (32), clients not at rest (33), halves far enough apart for gamma_max (39).
  function bipartition(mean, updates, compared) {
    const seen = {
      mean: norm(mean),
      longest: Math.max(...updates.map(norm)),
      cross: null,
      apart: null,
      split: false,
    };
    const finite = compared.every((row) => row.every(Number.isFinite));
    if (updates.length < 2 || !(seen.mean < eps1 && seen.longest > eps2 && finite))
      return { halves: null, seen };
    const alpha = cosine_similarity(compared);
    const halves = optimal_bipartition(alpha);
    seen.cross = cross_similarity(alpha, ...halves);
    seen.apart = Math.sqrt((1 - seen.cross) / 2);
    seen.split = gamma_max < seen.apart;
    return { halves: seen.split ? halves : null, seen };
  }

  return Object.freeze({
    ...settings,
    name: "CFL",
    update,
    bipartition,

    // One model, one cluster of all clients (Algorithm 5, line 3)
    init(world, seed, models = null) {
      const everybody = range(world.counts.length);
      const root = { parent: -1, clients: everybody, updates: null, children: [], model: null };
      return Object.freeze({
        seed,
        round: 0,
        bank: first_models(model, 1, seed, models),
        assignments: everybody.map(() => 0),
        nodes: [0],
        counts: world.counts,
        tree: [root],
        heard: {},
        tests: [],
      });
    },

    // Server: every client works, on the model of its own leaf
    plan(state) {
      return make_jobs(state, range(state.assignments.length));
    },

    // Clients: train and send the update (Algorithm 5, (1)); beside it the gradient, if the
    // similarities are to compare gradients (13)
    client_step(jobs, world) {
      const own = jobs.clients.map((i) => world.clients[i]);
      const starts = jobs.models.map(([row]) => jobs.bank[row]);
      const values = { loss: own.map((client, row) => model.loss(starts[row], client)) };
      if (similarity === "gradients")
        values.gradient = own.map((client, row) => model.gradient(starts[row], client));
      return {
        clients: jobs.clients,
        bank: own.map((client, row) => update(starts[row], client)),
        values,
      };
    },

    // Server: split a leaf, or move its model by its mean update (Algorithm 5, lines 10 to 23). In
    // the round of a split the mean is not applied: both children start from the parent's theta*.
    // The tests of a leaf wait until a share of its clients, the quorum, has answered since the last,
    // and take the newest answer of each. A client that missed the split of its cluster is sent the parent's theta* until its answer
    // says to which child it belongs (Algorithm 4).
    absorb(state, replies) {
      const compared = replies.values.gradient ?? replies.bank;
      const tree = [...state.tree];
      const nodes = [...state.nodes];
      const models = new Map(nodes.map((v, row) => [v, state.bank[row]]));
      const stands = state.assignments.map((row) => nodes[row]); // the node of each client
      const asked = replies.clients.map((i) => stands[i]);
      const heard = { ...state.heard };
      const tests = [];
      for (const v of state.nodes) {
        const here = range(asked.length).filter((row) => asked[row] === v);
        if (!here.length) continue;
        const ids = here.map((row) => replies.clients[row]);
        const sent = here.map((row) => replies.bank[row]);
        if (tree[v].children.length) {
          const child_of = sent.map((one) => nearer_child(tree, v, one));
          for (const child of tree[v].children) {
            ids.forEach((i, row) => {
              if (child_of[row] !== child) return;
              stands[i] = child;
              tree[child] = joined_node(tree[child], i, sent[row]);
            });
            if (!models.has(child)) {
              models.set(child, tree[child].model);
              nodes.push(child);
            }
          }
          continue;
        }
        const mean = weighted_mean(
          sent,
          ids.map((i) => state.counts[i]),
        );
        const now = here.map((row, n) => ({ id: ids[n], sent: sent[n], compared: compared[row] }));
        const told = [...(heard[v] ?? []).filter((one) => !ids.includes(one.id)), ...now];
        told.sort((a, b) => a.id - b.id);
        delete heard[v];
        let halves = null;
        if (told.length < quorum * tree[v].clients.length - 1e-9) heard[v] = told;
        else {
          const shown = weighted_mean(
            told.map((one) => one.sent),
            told.map((one) => state.counts[one.id]),
          );
          const test = bipartition(
            shown,
            told.map((one) => one.sent),
            told.map((one) => one.compared),
          );
          halves = test.halves;
          tests.push({ node: v, ...test.seen });
        }
        if (halves === null) {
          models.set(v, plus(models.get(v), mean));
          continue;
        }
        const children = [tree.length, tree.length + 1];
        tree[v] = { ...tree[v], children, model: models.get(v) };
        halves.forEach((half, side) => {
          const own = half.map((row) => told[row].id);
          tree.push({
            parent: v,
            clients: own,
            updates: half.map((row) => told[row].sent),
            children: [],
            model: null,
          });
          models.set(children[side], models.get(v));
          own.forEach((i) => {
            stands[i] = children[side];
          });
        });
        // The first child takes over the row; v keeps one only if a client is left there.
        nodes[nodes.indexOf(v)] = children[0];
        nodes.push(children[1], v);
      }
      const left = nodes.filter((v) => stands.includes(v));
      return next_state(state, {
        bank: left.map((v) => models.get(v)),
        nodes: left,
        assignments: stands.map((v) => left.indexOf(v)),
        tree,
        heard,
        tests,
      });
    },

    // Walk a new client down the tree (Algorithm 4): at each node it trains theta*_v and moves to
    // the child with the more similar update. Returns its path of nodes, from the root to a leaf.
    assign(state, client) {
      const path = [0];
      for (let node = state.tree[0]; node.children.length; node = state.tree[path.at(-1)]) {
        path.push(nearer_child(state.tree, path.at(-1), update(node.model, client)));
      }
      return path;
    },
  });
}

ALGORITHMS.CFL = CFL;
