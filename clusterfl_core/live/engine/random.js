import { whole } from "./check.js";

// Random numbers by name, alike in JavaScript and Python (Python: live/random.py).
//
// Philox4x32-10 (Salmon, Moraes, Dror, Shaw; 2011): ten rounds turn a counter of four 32-bit words
// and a key of two into four random words. Nothing is remembered but how many numbers were drawn.
//
//     key     = (seed, number of the stream: FNV-1a of its name in UTF-8)
//     counter = (how many numbers this stream has drawn, a, b, c)
//
// a, b, c say what the numbers are for, for example round and client. Each number takes one block
// (w0, w1, w2, w3) of its own:
//
//     uniform     ((w0 >> 5) 2^26 + (w1 >> 6)) / 2^53, in [0, 1)
//     normal      sqrt(-2 ln(1 - u)) cos(2 pi v), u from w0 and w1, v from w2 and w3 (Box-Muller)
//     integer(n)  w0 mod n, if w0 < 2^32 - (2^32 mod n); else the next block is tried
//     shuffle     for i from the end down to 1: change places with integer(i + 1) (Fisher-Yates)

const WORD = 2 ** 32;

// The upper 32 bits of a product of two 32-bit words.
function high_word(a, b) {
  const [a0, a1, b0, b1] = [a & 0xffff, a >>> 16, b & 0xffff, b >>> 16];
  const [cross, other] = [a0 * b1, a1 * b0];
  const middle = ((a0 * b0) >>> 16) + (cross & 0xffff) + (other & 0xffff);
  return (a1 * b1 + (cross >>> 16) + (other >>> 16) + (middle >>> 16)) >>> 0;
}

export function philox(counter, key) {
  let [c0, c1, c2, c3] = counter;
  let [k0, k1] = key;
  for (let round = 0; round < 10; round++) {
    const [high0, low0] = [high_word(0xd2511f53, c0), Math.imul(0xd2511f53, c0) >>> 0];
    const [high1, low1] = [high_word(0xcd9e8d57, c2), Math.imul(0xcd9e8d57, c2) >>> 0];
    [c0, c1, c2, c3] = [(high1 ^ c1 ^ k0) >>> 0, low1, (high0 ^ c3 ^ k1) >>> 0, low0];
    [k0, k1] = [(k0 + 0x9e3779b9) >>> 0, (k1 + 0xbb67ae85) >>> 0];
  }
  return [c0, c1, c2, c3];
}

export function stream_number(name) {
  let hash = 0x811c9dc5;
  for (const byte of new TextEncoder().encode(name))
    hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

const fraction = (a, b) => ((a >>> 5) * 2 ** 26 + (b >>> 6)) / 2 ** 53;

export function stream(seed, name, a = 0, b = 0, c = 0) {
  const key = [whole("seed", seed, 0, WORD - 1), stream_number(name)];
  let drawn = 0;
  const block = () => philox([drawn++, a, b, c], key);
  const one = {
    uniform() {
      const [w0, w1] = block();
      return fraction(w0, w1);
    },
    normal() {
      const [w0, w1, w2, w3] = block();
      return (
        Math.sqrt(-2 * Math.log(1 - fraction(w0, w1))) * Math.cos(2 * Math.PI * fraction(w2, w3))
      );
    },
    integer(n) {
      const limit = WORD - (WORD % n);
      for (;;) {
        const [w0] = block();
        if (w0 < limit) return w0 % n;
      }
    },
    shuffle(array) {
      const order = [...array];
      for (let i = order.length - 1; i > 0; i--) {
        const j = one.integer(i + 1);
        [order[i], order[j]] = [order[j], order[i]];
      }
      return order;
    },
  };
  return one;
}

export const range = (count) => Array.from({ length: count }, (_, i) => i);
