// The state of a laboratory, what follows from it, and the way back. Whatever is refused leaves the
// last good state as it was.

import { checked_state } from "./fields.js";

const TURN = 5; // milliseconds of work between two pictures

// rules: {compute(state, path) → found} and, for a laboratory with rounds, first(state) → frame and
// next(state, frame) → frame, or a promise of it: the state then says `rounds`, and path has the
// frames from round 0 on. changed(keeping) draws; failed(sentence) tells.
export class Keeping {
  #past = [];
  #first;
  #turn = 0; // of the work: what an earlier turn still brings is not wanted any more

  constructor(state, rules, changed, failed) {
    Object.assign(this, { rules, changed, failed });
    this.#first = state;
    Object.assign(this, { state, ...this.#begun(state) });
  }

  // Draws for the first time and plays the rounds of the state.
  begin() {
    this.#work(this.#turn);
  }

  get busy() {
    return this.rules.next !== undefined && this.path.length <= this.state.rounds;
  }

  get can_undo() {
    return this.#past.length > 0;
  }

  #begun(state) {
    const path = this.rules.first ? [this.rules.first(state)] : [];
    return { path, found: this.rules.compute(state, path) };
  }

  #take(state, { path, found }) {
    this.#turn += 1;
    Object.assign(this, { state, path, found });
    this.#work(this.#turn);
  }

  // Rounds until the state is reached, a slice at a time.
  async #work(turn) {
    let end = performance.now() + TURN;
    try {
      while (this.busy) {
        let next = this.rules.next(this.state, this.path.at(-1));
        if (next instanceof Promise) {
          this.changed(this); // which says that it is busy
          next = await next;
          if (turn !== this.#turn) return;
        }
        this.path.push(next);
        if (performance.now() < end && this.busy) continue;
        this.found = this.rules.compute(this.state, this.path);
        if (!this.busy) break;
        this.changed(this);
        await new Promise((done) => requestAnimationFrame(done));
        if (turn !== this.#turn) return;
        end = performance.now() + TURN;
      }
    } catch (error) {
      if (turn !== this.#turn) return;
      this.state = { ...this.state, rounds: this.path.length - 1 };
      this.found = this.rules.compute(this.state, this.path);
      this.failed(error.message);
    }
    this.changed(this);
  }

  // Another state, or some of its entries. `undo`: the reader can come back to this one.
  change(parts, undo = true) {
    let state;
    let begun;
    try {
      state = checked_state({ ...this.state, ...parts });
      begun = this.#begun(state);
    } catch (error) {
      this.failed(error.message);
      this.changed(this);
      return false;
    }
    if (undo) this.#past.push(this.state);
    this.#take(state, begun);
    return true;
  }

  // One more round, without those before it anew. `parts`: entries that only the coming rounds read.
  step(undo = true, parts = {}) {
    if (this.busy) return false;
    const before = this.state;
    try {
      this.state = checked_state({ ...before, ...parts, rounds: before.rounds + 1 });
    } catch (error) {
      const last = before.rounds === TABLE.rounds.high;
      this.failed(last ? `This laboratory plays at most ${before.rounds} rounds` : error.message);
      return false;
    }
    this.#turn += 1;
    this.#work(this.#turn);
    const moved = this.state.rounds > before.rounds;
    if (undo && moved) this.#past.push(before);
    return moved;
  }

  undo() {
    const state = this.#past.pop();
    if (state) this.#take(state, this.#begun(state));
  }

  // The first round again, with all else as it is.
  rewind() {
    if (this.state.rounds) this.change({ rounds: 0 });
  }

  // What the laboratory began with.
  reset() {
    this.change(this.#first);
  }
}
