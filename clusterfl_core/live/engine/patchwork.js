// A world of digits that is put together: groups whose images are turned and whose labels change
// places, clients that hold two digits more often than the others, and clients that lie.

import { known, number, whole } from "./check.js";
import { MLP, TRAINING_DIGITS, digits_client } from "./digits.js";
import { WORLDS } from "./kinds.js";
import { MOST } from "./linear.js";
import { range, stream } from "./random.js";

const NAMES = 10; // digits

export function patchwork_settings(given) {
  const settings = known("the patchwork", given, {
    groups: 3,
    angle: 90,
    swaps: 0,
    skew: 0,
    points: 40,
    clients: 4,
    last: 4,
    liars: 0,
    hidden: 32,
    seed: 0,
  });
  const groups = whole("groups", settings.groups, 1, 6);
  number("angle", settings.angle, "[0, 360)");
  whole("swaps", settings.swaps, 0, NAMES / 2);
  number("skew", settings.skew, "[0, 1]");
  whole("points", settings.points, 1, MOST.points);
  whole("clients", settings.clients, 1, MOST.clients);
  whole("last", settings.last, 1, MOST.clients);
  whole("liars", settings.liars, 0, MOST.clients);
  whole("hidden", settings.hidden, 1, 256);
  whole("seed", settings.seed, 0, 2 ** 32 - 1);
  const m = (groups - 1) * settings.clients + settings.last + settings.liars;
  if (m * settings.points > TRAINING_DIGITS) {
    throw new Error(
      `there are ${TRAINING_DIGITS} images, ${m} clients with ${settings.points} each would need ${m * settings.points}`,
    );
  }
  return settings;
}

// Group g sees its images turned by g times the angle, and from the second group on so many pairs
// of labels, others in each group, change places. Each client prefers two digits: a share `skew` of
// its images is drawn from these alone, as long as there are any. Liars see images as the first
// group does and call each digit one more (9 is 0). No image is dealt twice.
//
// Beside the clients: test, all test images as each group sees them; liars are the cluster
// `groups`; weights [client][test image]: what the image counts for in the client's own mix.
export function make_patchwork({ images, ...given }) {
  const settings = patchwork_settings(given);
  const { groups, skew, points, clients: each, last, liars, hidden, seed } = settings;
  const sizes = [...Array(groups - 1).fill(each), last, liars];
  const clusters = sizes.flatMap((size, cluster) => Array(size).fill(cluster));
  const favourites = stream(seed, "favourites").shuffle(range(NAMES));
  const views = views_of(settings);
  const order = stream(seed, "deal").shuffle(range(TRAINING_DIGITS));
  const left = range(NAMES).map((name) => order.filter((row) => images.y[row] === name));
  const dealt = new Set();
  const next_of = (rows) => {
    let row;
    do row = rows.shift();
    while (dealt.has(row));
    return row;
  };
  const clients = clusters.map((cluster, i) => {
    const source = stream(seed, "picks", i);
    const rows = range(points).map((at) => {
      const wanted = source.uniform() < skew;
      const name = favourites[(2 * i + (at % 2)) % NAMES];
      const row = (wanted ? next_of(left[name]) : undefined) ?? next_of(order);
      dealt.add(row);
      return row;
    });
    return { ...seen_client(images, rows, views[cluster]), cluster, rows };
  });

  const rest = range(images.y.length).slice(TRAINING_DIGITS);
  const test = range(groups).map((cluster) => ({
    ...seen_client(images, rest, views[cluster]),
    cluster,
  }));
  const weights = clusters.map((_, i) => {
    const some = range(NAMES).map((name) => rest.filter((row) => images.y[row] === name).length);
    const liked = [0, 1].map((a) => favourites[(2 * i + a) % NAMES]);
    const mix = range(NAMES).map((n) => (1 - skew) / NAMES + (liked.includes(n) ? skew / 2 : 0));
    return Float64Array.from(rest, (row) => mix[images.y[row]] / some[images.y[row]]);
  });
  return Object.freeze({
    kind: "digits",
    model: MLP(64, hidden, NAMES),
    clients,
    test,
    weights,
    counts: clients.map((client) => client.n),
    clusters,
    truth: null,
  });
}

// How each group sees digits and what it calls them, and, last, the liars.
export function views_of({ groups, angle, swaps, seed }) {
  const views = range(groups).map((group) => {
    const names = range(NAMES);
    const pairs = stream(seed, "labels", group).shuffle(range(NAMES));
    for (let pair = 0; pair < (group ? swaps : 0); pair++) {
      const [one, other] = [pairs[2 * pair], pairs[2 * pair + 1]];
      [names[one], names[other]] = [other, one];
    }
    return { degrees: (angle * group) % 360, names };
  });
  return [...views, { degrees: 0, names: range(NAMES).map((name) => (name + 1) % NAMES) }];
}

// Images as a view has them.
export function seen_client(images, rows, { degrees, names }) {
  const client = digits_client(images, rows, "rotated", degrees, []);
  return { ...client, y: client.y.map((label) => names[label]) };
}

WORLDS.patchwork = (settings, images) => ({
  world: images === null ? null : make_patchwork({ ...settings, images }),
  model: MLP(64, patchwork_settings(settings).hidden, NAMES),
});
