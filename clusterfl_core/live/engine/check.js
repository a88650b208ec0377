// Settings at the door: a number, or one sentence that says what is wrong (Python: check.py).

function as_number(name, value) {
  if (typeof value !== "number" || Number.isNaN(value)) {
    throw new Error(`${name} must be a number, got ${shown(value)}`);
  }
  return value;
}

// A value in a sentence: never longer than a line, whatever was given.
export function shown(value) {
  const text = typeof value === "number" ? String(value) : (JSON.stringify(value) ?? String(value));
  return text.length > 60 ? `${text.slice(0, 60)}…` : text;
}

export function whole(name, value, least = 1, most = Infinity) {
  const found = as_number(name, value);
  if (!Number.isInteger(found)) throw new Error(`${name} must be a whole number, got ${found}`);
  if (found < least) throw new Error(`${name} must be at least ${least}, got ${found}`);
  if (found > most) throw new Error(`${name} must be at most ${most}, got ${found}`);
  return found;
}

// A number in an interval as one writes it: "[0, 1)" or "(0, inf)".
export function number(name, value, interval, words = `be in ${interval}`) {
  const found = as_number(name, value);
  const [low, high] = interval
    .slice(1, -1)
    .split(",")
    .map((end) => Number(end.trim().replace("inf", "Infinity")));
  const ends =
    (found === low && interval.startsWith("[")) || (found === high && interval.endsWith("]"));
  if (!((low < found && found < high) || ends))
    throw new Error(`${name} must ${words}, got ${found}`);
  return found;
}

export function positive(name, value) {
  return number(name, value, "(0, inf)", "be positive and finite");
}

export function share(name, value) {
  return number(name, value, "(0, 1]");
}

export function truthful(name, value) {
  if (typeof value !== "boolean")
    throw new Error(`${name} must be true or false, got ${shown(value)}`);
  return value;
}

export function one_of(name, value, allowed) {
  if (!allowed.includes(value)) {
    throw new Error(
      `${name} must be ${allowed.map((one) => `'${one}'`).join(" or ")}, got ${shown(value)}`,
    );
  }
  return value;
}

export function among(name, value, clients) {
  if (value !== null && value > clients) {
    throw new Error(`${name} must be at most the ${clients} clients, got ${value}`);
  }
}

// The settings that were given, and the defaults of those that were not. A name that is not among
// the defaults is refused, so neither a typing slip nor `__proto__` gets any further.
export function known(what, given, defaults) {
  if (given === null || typeof given !== "object" || Array.isArray(given)) {
    throw new Error(`${what} needs its settings by name, got ${shown(given)}`);
  }
  for (const name of Object.keys(given)) {
    if (!Object.hasOwn(defaults, name)) throw new Error(`${what} has no setting ${shown(name)}`);
  }
  const found = { ...defaults, ...given };
  for (const name of Object.keys(found)) {
    if (found[name] === undefined) throw new Error(`${what} needs ${name}`);
  }
  return found;
}

// Rows of finite numbers, all of one length, each as a Float64Array of its own.
export function rows_of(name, given, most, width = null) {
  if (!Array.isArray(given) || !given.length || given.length > most) {
    throw new Error(
      `${name} must be a list of 1 to ${most} rows, got ${Array.isArray(given) ? given.length : shown(given)}`,
    );
  }
  const length = width ?? given[0]?.length;
  return given.map((row, i) => {
    if (!(Array.isArray(row) || row instanceof Float64Array) || row.length !== length || !length) {
      throw new Error(
        `${name} must have ${length || "some"} numbers in each row, row ${i} is ${shown(row)}`,
      );
    }
    row.forEach((value) => {
      if (typeof value !== "number" || !Number.isFinite(value)) {
        throw new Error(`${name} must be finite, row ${i} has ${shown(value)}`);
      }
    });
    return Float64Array.from(row);
  });
}
