// Clients with handwritten digits, and a network with one hidden layer.

import { known, number, one_of, whole } from "./check.js";
import { WORLDS } from "./kinds.js";
import { MOST } from "./linear.js";
import { range, stream } from "./random.js";

const PIXELS = 64;
const CLASSES = 10;
export const TRAINING_DIGITS = 1437; // the rest is for testing, as in cf.data.load("digits")

// scikit-learn's 1,797 digits of 8 x 8 pixels with 17 grey levels: four pixels are a number below
// 17^4 < 2^18 and so three characters of the base-64 alphabet. After the pixels come the labels.
export function unpack_digits(text) {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const value = new Uint8Array(128);
  [...alphabet].forEach((letter, i) => {
    value[letter.charCodeAt(0)] = i;
  });
  const each = (PIXELS / 4) * 3;
  const count = text.length / (each + 1);
  whole("images in the text", count, 1);
  const [x, y] = [new Uint8Array(count * PIXELS), new Uint8Array(count)];
  for (let i = 0; i < count * (PIXELS / 4); i++) {
    let four = 0;
    for (let c = 0; c < 3; c++) four = four * 64 + value[text.charCodeAt(3 * i + c)];
    for (let p = 3; p >= 0; p--) {
      x[4 * i + p] = four % 17;
      four = Math.floor(four / 17);
    }
  }
  for (let i = 0; i < count; i++) y[i] = Number(text[count * each + i]);
  return { x, y };
}

// Images as quarter turns counterclockwise show them (Python: twists.turn).
function turned(image, quarters) {
  let found = image;
  for (let turn = 0; turn < quarters; turn++) {
    const before = found;
    found = before.map((_, at) => before[(at % 8) * 8 + 7 - Math.floor(at / 8)]);
  }
  return found;
}

// Images turned counterclockwise by any angle: each pixel is the mean (bilinear) of the four around
// the place it comes from, on Python's scale of 0 to 255; what enters at the corners is black.
function tilted(image, degrees) {
  const [c, s] = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  const grey = (row, column) =>
    row < 0 || row > 7 || column < 0 || column > 7
      ? 0
      : Math.round((image[8 * row + column] * 255) / 16);
  return Float64Array.from(range(PIXELS), (at) => {
    const [x, y] = [(at % 8) - 3.5, Math.floor(at / 8) - 3.5];
    const [column, row] = [c * x - s * y + 3.5, s * x + c * y + 3.5];
    const [left, top] = [Math.floor(column), Math.floor(row)];
    const [right, down] = [column - left, row - top];
    const above = (1 - right) * grey(top, left) + right * grey(top, left + 1);
    const below = (1 - right) * grey(top + 1, left) + right * grey(top + 1, left + 1);
    return Math.floor((1 - down) * above + down * below + 0.5);
  });
}

export function digits_settings(given) {
  const settings = known("the world of digits", given, {
    twist: "rotated",
    clusters: 4,
    clients: 6,
    points: 40,
    hidden: 32,
    seed: 0,
    angle: null,
  });
  one_of("twist", settings.twist, ["rotated", "swapped", "none"]);
  const k = whole(
    "clusters",
    settings.clusters,
    1,
    { rotated: 4, swapped: 5, none: 1 }[settings.twist],
  );
  if (settings.angle !== null) {
    number("angle", settings.angle, "[0, 360)");
    if (settings.twist !== "rotated") throw new Error("an angle needs the twist 'rotated'");
  } else if (settings.twist === "rotated" && k === 3)
    throw new Error("clusters must be 1, 2 or 4 (quarter turns), got 3");
  const m = k * whole("clients", settings.clients, 1, MOST.clients);
  whole("points", settings.points, 1, MOST.points);
  whole("hidden", settings.hidden, 1, 256);
  whole("seed", settings.seed, 0, 2 ** 32 - 1);
  if (m * settings.points > TRAINING_DIGITS) {
    throw new Error(
      `there are ${TRAINING_DIGITS} images, ${m} clients with ${settings.points} each would need ${m * settings.points}`,
    );
  }
  return settings;
}

// A world of digits. Every client holds `points` images of its own, no image twice; each hidden
// cluster sees them in its own way. "rotated": turned by 360 / k degrees more each, or by `angle`
// (IFCA, section 6.2). "swapped": two labels change places, others in each cluster (CFL, section VI). "none": one
// cluster for all. `test` holds one client a cluster, with all test images.
export function make_digits({ images, ...given }) {
  const settings = digits_settings(given);
  const { twist, clusters, clients: each, points, hidden, seed, angle } = settings;
  const degrees = (cluster) => (angle ?? 360 / clusters) * cluster;
  const model = MLP(PIXELS, hidden, CLASSES);
  const order = stream(seed, "deal").shuffle(range(TRAINING_DIGITS));
  const swaps = stream(seed, "labels").shuffle(range(CLASSES));
  const pair = (cluster) => swaps.slice(2 * cluster, 2 * cluster + 2);
  const clients = range(clusters * each).map((i) => {
    const cluster = Math.floor(i / each);
    const rows = order.slice(i * points, (i + 1) * points);
    return {
      ...digits_client(images, rows, twist, degrees(cluster), pair(cluster)),
      cluster,
      rows,
    };
  });
  const rest = range(images.y.length).slice(TRAINING_DIGITS);
  const test = range(clusters).map((cluster) => ({
    ...digits_client(images, rest, twist, degrees(cluster), pair(cluster)),
    cluster,
  }));
  return Object.freeze({
    kind: "digits",
    model,
    clients,
    test,
    counts: clients.map((client) => client.n),
    clusters: clients.map((client) => client.cluster),
    truth: null,
  });
}

// What a client holds: some rows of the images, seen in its cluster's way; [one, other]: labels that change
// places where the twist is "swapped".
export function digits_client(images, rows, twist, degrees, [one, other]) {
  const x = new Float64Array(rows.length * PIXELS);
  const y = new Int32Array(rows.length);
  rows.forEach((row, l) => {
    const image = images.x.subarray(row * PIXELS, (row + 1) * PIXELS);
    const slanted = twist === "rotated" && degrees % 90 !== 0;
    const seen = slanted
      ? tilted(image, degrees)
      : turned(image, twist === "rotated" ? degrees / 90 : 0);
    seen.forEach((grey, p) => {
      x[l * PIXELS + p] = (slanted ? grey : Math.round((grey * 255) / 16)) / 255;
    });
    const label = images.y[row];
    const swap = twist === "swapped" && (label === one || label === other);
    y[l] = swap ? one + other - label : label;
  });
  return { n: rows.length, x, y };
}

// A world of points that somebody else made: x [n * inputs] in [0, 1], y labels.
export function digits_world(clients, model) {
  return Object.freeze({
    kind: "digits",
    model,
    truth: null,
    clients: clients.map(({ x, y, cluster = 0 }) => ({
      n: y.length,
      x: Float64Array.from(x),
      y: Int32Array.from(y),
      cluster,
    })),
    counts: clients.map(({ y }) => y.length),
    clusters: clients.map(({ cluster = 0 }) => cluster),
  });
}

// One hidden layer with ReLU, a linear layer, and cross-entropy (IFCA's network, section 6.2). Its
// parameters lie in one row, in Python's order: hidden.weight [h, inputs], hidden.bias [h],
// output.weight [classes, h], output.bias [classes].
export function MLP(inputs, hidden, classes) {
  whole("hidden", hidden, 1, 256);
  const bias1 = hidden * inputs;
  const weight2 = bias1 + hidden;
  const bias2 = weight2 + classes * hidden;
  const active = new Float64Array(hidden);
  const guess = new Float64Array(classes);

  // Fills `active` and `guess` (logits) for one point.
  function forward(theta, x, at) {
    for (let u = 0; u < hidden; u++) {
      const row = u * inputs;
      let sum = theta[bias1 + u];
      for (let p = 0; p < inputs; p++) sum += theta[row + p] * x[at + p];
      active[u] = sum > 0 ? sum : 0 * sum; // NaN stays NaN
    }
    for (let c = 0; c < classes; c++) {
      const row = weight2 + c * hidden;
      let sum = theta[bias2 + c];
      for (let u = 0; u < hidden; u++) sum += theta[row + u] * active[u];
      guess[c] = sum;
    }
  }

  // Turns `guess` into probabilities; the loss of a point is log sum exp - logit of its label.
  function softmax(label) {
    let top = -Infinity;
    for (let c = 0; c < classes; c++) if (!(guess[c] <= top)) top = guess[c];
    const right = guess[label] - top;
    let total = 0;
    for (let c = 0; c < classes; c++) total += guess[c] = Math.exp(guess[c] - top);
    for (let c = 0; c < classes; c++) guess[c] /= total;
    return Math.log(total) - right;
  }

  function point_losses(theta, client) {
    return Float64Array.from({ length: client.n }, (_, l) => {
      forward(theta, client.x, l * inputs);
      return softmax(client.y[l]);
    });
  }

  return Object.freeze({
    name: "MLP",
    inputs,
    hidden,
    classes,
    size: bias2 + classes,
    point_losses,

    // F_i(theta)
    loss(theta, client) {
      return point_losses(theta, client).reduce((sum, one) => sum + one, 0) / client.n;
    },

    // The gradient of F_i: softmax minus label, back through the linear layer and ReLU. weights:
    // factors of the points' losses; the mean is still over their number.
    gradient(theta, client, weights = null) {
      const slope = new Float64Array(bias2 + classes);
      const { x, y, n } = client;
      for (let l = 0; l < n; l++) {
        const at = l * inputs;
        forward(theta, x, at);
        softmax(y[l]);
        guess[y[l]] -= 1;
        const counted = weights === null ? n : n / weights[l];
        for (let c = 0; c < classes; c++) {
          const error = (guess[c] /= counted);
          const row = weight2 + c * hidden;
          for (let u = 0; u < hidden; u++) slope[row + u] += error * active[u];
          slope[bias2 + c] += error;
        }
        for (let u = 0; u < hidden; u++) {
          if (active[u] === 0) continue;
          let back = 0;
          for (let c = 0; c < classes; c++) back += guess[c] * theta[weight2 + c * hidden + u];
          const row = u * inputs;
          for (let p = 0; p < inputs; p++) slope[row + p] += back * x[at + p];
          slope[bias1 + u] += back;
        }
      }
      return slope;
    },

    // PyTorch's: uniform within 1 / sqrt(number of inputs of the layer)
    fresh(source) {
      return Float64Array.from({ length: bias2 + classes }, (_, at) => {
        const most = 1 / Math.sqrt(at < weight2 ? inputs : hidden);
        return most * (2 * source.uniform() - 1);
      });
    },

    // The probability of each class for each point of x: [points * classes]
    probabilities(theta, x) {
      const found = new Float64Array((x.length / inputs) * classes);
      for (let l = 0; l * inputs < x.length; l++) {
        forward(theta, x, l * inputs);
        softmax(0);
        found.set(guess, l * classes);
      }
      return found;
    },

    // The fraction of its points that a client's model gets right
    accuracy(theta, client) {
      let right = 0;
      for (let l = 0; l < client.n; l++) {
        forward(theta, client.x, l * inputs);
        right += guess.indexOf(Math.max(...guess)) === client.y[l];
      }
      return right / client.n;
    },
  });
}

WORLDS.digits = (settings, images) => ({
  world: images === null ? null : make_digits({ ...settings, images }),
  model: MLP(64, digits_settings(settings).hidden, 10),
});
