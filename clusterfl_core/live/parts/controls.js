// Sliders, choices and buttons, each with a name that is seen and spoken, and a value. (A slider has
// its value in a plain span: an <output> would be announced a second time.)

import { digits, html } from "./dom.js";

let controls_made = 0;

// A slider of `count` decimals from low to high; changed(value, begins), begins true at the first
// move of a drag. → {node, set(value)}
export function slider({ name, low, high, by, count = 0, changed }) {
  const id = `control-${++controls_made}`;
  const value = html("span", { class: "value", "aria-hidden": "true" });
  let begins = true;
  const input = html("input", {
    type: "range",
    id,
    min: low,
    max: high,
    step: by,
    input: () => {
      value.textContent = digits(Number(input.value), count);
      changed(Number(input.value), begins);
      begins = false;
    },
    change: () => {
      begins = true;
    },
  });
  const node = html("div", { class: "control" }, html("label", { for: id }, name), input, value);
  return {
    node,
    set(now) {
      if (Number(input.value) !== now) input.value = now;
      value.textContent = digits(now, count);
    },
  };
}

// One of several: options [[value, text] …]. → {node, set(value)}
export function choice({ name, options, changed }) {
  const id = `control-${++controls_made}`;
  const input = html(
    "select",
    { id, change: () => changed(input.value) },
    ...options.map(([value, text]) => html("option", { value }, text)),
  );
  return {
    node: html("div", { class: "control" }, html("label", { for: id }, name), input),
    set(now) {
      input.value = now;
    },
  };
}

export function button(text, click, attributes = {}) {
  return html("button", { type: "button", click, ...attributes }, text);
}

// Yes or no. → {node, set(value)}
export function toggle({ name, changed }) {
  const id = `control-${++controls_made}`;
  const input = html("input", {
    type: "checkbox",
    id,
    change: () => changed(input.checked, true),
  });
  return {
    node: html("div", { class: "control tick" }, input, html("label", { for: id }, name)),
    set(now) {
      input.checked = now;
    },
  };
}
