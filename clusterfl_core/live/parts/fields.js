// The table of a laboratory's state: what each entry is called, its limits and its control. Python
// writes it before the modules as TABLE: {name: {kind, words, …}} (live/fields.py). Limits stand there
// and nowhere else.

import { known, number, one_of, rows_of, truthful, whole } from "../engine/check.js";
import { choice, slider, toggle } from "./controls.js";

const bounded = (words, value, { low, high }) => number(words, value, `[${low}, ${high}]`);

const KINDS = {
  whole: ({ words, low, high }, value) => whole(words, value, low, high),
  number: (field, value) => bounded(field.words, value, field),
  choice: ({ words, options }, value) =>
    one_of(
      words,
      value,
      options.map(([name]) => name),
    ),
  flag: ({ words }, value) => truthful(words, value),
  list: (field, value) => {
    const { words, least, most } = field;
    if (!Array.isArray(value) || value.length < least || value.length > most)
      throw new Error(`${words} must be a list of ${least} to ${most} numbers`);
    return value.map((one) =>
      field.whole ? whole(words, one, field.low, field.high) : bounded(words, one, field),
    );
  },
  rows: (field, value) => {
    const rows = rows_of(field.words, value, field.most, field.width);
    if (rows.length < field.least)
      throw new Error(`${field.words} must be at least ${field.least} rows, got ${rows.length}`);
    return rows.map((row) => Array.from(row, (one) => bounded(field.words, one, field)));
  },
};

// A state from elsewhere, every entry of which was looked at, or an Error with a sentence.
export function checked_state(given) {
  const blank = Object.fromEntries(Object.keys(TABLE).map((name) => [name, undefined]));
  const state = known("This laboratory", given, blank);
  return Object.fromEntries(
    Object.entries(TABLE).map(([name, field]) => [name, KINDS[field.kind](field, state[name])]),
  );
}

// The state in a text.
export function read_state(text) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    throw new Error("The state of a laboratory cannot be read");
  }
  return checked_state(given);
}

// The control of an entry: a slider, a choice or a box to tick; changed(value, begins). Of a list it is
// the slider of one number in it.
export function control_of(name, changed) {
  const { kind, words, ...field } = TABLE[name];
  const make = { whole: slider, number: slider, choice, flag: toggle, list: slider }[kind];
  return make({ name: words, ...field, changed });
}
