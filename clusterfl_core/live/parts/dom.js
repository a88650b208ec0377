// Making elements in one line each.

const SVG = "http://www.w3.org/2000/svg";

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value !== null && value !== false)
      made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

// An HTML element; an attribute that is a function listens to the event of that name.
export function html(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

// The same for SVG.
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

// Between two pieces of work: the page looks after its reader.
export const breath = () => new Promise((go_on) => setTimeout(go_on));

// The width of what `node` holds, or `otherwise` while it has none; again() where it has changed since it
// was last asked for. Only the first question makes the page lay itself out.
export function width_of(inner, node, otherwise, again) {
  let known_width = null;
  let given = null;
  new ResizeObserver(() => {
    known_width = inner.clientWidth;
    if (given !== null && given !== (known_width || otherwise)) again();
  }).observe(node);
  return () => {
    known_width ??= inner.clientWidth;
    given = known_width || otherwise;
    return given;
  };
}

// A number as it is read: with a true minus, never "-0.00".
export function digits(value, count = 2) {
  const text = Math.abs(value) >= 1e6 ? value.toExponential(1) : value.toFixed(count);
  return (Number(text) === 0 ? text.replace("-", "") : text).replace("-", "−");
}

// A number of a state as it is kept: what a reader drags has no more than three decimals.
export const kept_number = (value) => Math.round(1e3 * value) / 1e3;

// A finger that leaves what it drags while it still moves begins a fling, though nothing scrolls, and
// the next tap only ends that: so no gesture is made of touches on what `where` names.
export function no_fling(node, where) {
  const hold_back = (event) => event.target.closest(where) && event.preventDefault();
  node.addEventListener("touchstart", hold_back, { passive: false });
}

// "6, 6 and 7"
export function listed(items) {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} and ${items.at(-1)}`;
}
