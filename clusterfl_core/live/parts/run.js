// A run that can be changed: one description of world, algorithm, first models and rounds, and
// the states it leads to. Whatever is refused leaves the last good run as it was.

import { begin } from "../engine/lab.js";
import { step } from "../engine/loop.js";
import { training_loss } from "../engine/starts.js";

const SLICE = 5; // milliseconds of work between two pictures
const RUNAWAY = 1e6; // times the first loss: further rounds only fill the numbers with noughts

export class Run {
  #past = [];
  #first;
  #frame = 0;

  // changed(run) draws; failed(sentence) tells.
  constructor(description, most, changed, failed) {
    Object.assign(this, { most, changed, failed });
    this.#first = description;
    this.#take(description, begin(description));
  }

  // Draws for the first time and plays the rounds of the description.
  begin() {
    this.#work();
  }

  get state() {
    return this.path.at(-1);
  }

  get busy() {
    return this.path.length <= this.description.rounds;
  }

  get can_undo() {
    return this.#past.length > 0;
  }

  #take(description, { world, algorithm, state }) {
    Object.assign(this, { description, world, algorithm, path: [state] });
    this.losses = [training_loss(world.model, state.bank, world)];
  }

  // Rounds until the description is reached, a slice at a time.
  #work() {
    cancelAnimationFrame(this.#frame);
    const end = performance.now() + SLICE;
    try {
      while (this.busy && performance.now() < end) {
        const next = step(this.algorithm, this.world, this.state);
        const loss = training_loss(this.world.model, next.bank, this.world);
        if (!(loss <= RUNAWAY * (1 + this.losses[0])))
          throw new Error(
            `Round ${next.round}: the loss grows without end; the step size is probably too large`,
          );
        this.path.push(next);
        this.losses.push(loss);
      }
    } catch (error) {
      this.description = { ...this.description, rounds: this.path.length - 1 };
      this.failed(error.message);
    }
    if (this.busy) this.#frame = requestAnimationFrame(() => this.#work());
    this.changed(this);
  }

  // Another description, or some of its parts. `undo`: the reader can come back to this one.
  change(parts, undo = true) {
    const description = { ...this.description, ...parts };
    let begun;
    try {
      if (description.rounds > this.most)
        throw new Error(`This laboratory plays at most ${this.most} rounds`);
      begun = begin(description);
    } catch (error) {
      this.failed(error.message);
      this.changed(this);
      return false;
    }
    if (undo) this.#past.push(this.description);
    this.#take(description, begun);
    this.#work();
    return true;
  }

  // One more round, without those before it anew.
  step(undo = true) {
    if (this.busy) return false;
    if (this.path.length > this.most) {
      this.failed(`This laboratory plays at most ${this.most} rounds`);
      return false;
    }
    const before = this.description;
    this.description = { ...before, rounds: before.rounds + 1 };
    this.#work();
    const moved = this.description.rounds > before.rounds;
    if (undo && moved) this.#past.push(before);
    return moved;
  }

  undo() {
    const description = this.#past.pop();
    if (!description) return;
    this.#take(description, begin(description));
    this.#work();
  }

  // The first round again, with all else as it is.
  rewind() {
    if (this.description.rounds) this.change({ rounds: 0 });
  }

  // What the laboratory began with.
  reset() {
    this.change(this.#first);
  }
}
