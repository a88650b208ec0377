// Things in a square plane that a reader moves: by mouse, finger or keys.

import { digits, html, kept_number, no_fling, svg } from "./dom.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
const REACH = 44; // pixels: what a finger hits

// `layer` lies over the drawing of the square from -edge to edge. show() takes the handles:
// {key, name, at: [x, y], draw(x, y) → SVG, moved(at, begins)}; `begins` is true at the first
// move of a drag and at each key, and stays so while moved says false, where nothing changed. What
// moves on a line or a circle says so: pressed([right, up], far) instead of moved at a key, range
// [least, most, now] and said, the value in words. Where `look`, a text, changes, the handle is
// drawn anew.
export function make_handles(layer, edge) {
  const kept = new Map();
  const within = (value) => Math.max(-edge, Math.min(edge, value));
  const percent = (value) => `${(50 * (within(value) + edge)) / edge}%`;
  let dragged = null;

  const place = (event, offset = [0, 0]) => {
    const box = layer.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 2 * edge - edge;
    const y = edge - ((event.clientY - box.top) / box.height) * 2 * edge;
    return [x + offset[0], y + offset[1]].map((value) => kept_number(within(value)));
  };

  // Handles may lie over each other: the nearest is meant.
  const nearest = (event) => {
    const far = (node) => {
      const box = node.getBoundingClientRect();
      return Math.hypot(
        event.clientX - box.left - box.width / 2,
        event.clientY - box.top - box.height / 2,
      );
    };
    return [...kept.values()].reduce((least, one) =>
      far(one.node) < far(least.node) ? one : least,
    );
  };

  layer.addEventListener("pointerdown", (event) => {
    if (event.button || !event.target.closest("[role=slider]")) return;
    event.preventDefault();
    const one = nearest(event);
    const at = place(event);
    const start = one.handle.at.map(within);
    dragged = {
      one,
      id: event.pointerId,
      offset: [start[0] - at[0], start[1] - at[1]],
      begins: true,
    };
    layer.setPointerCapture(event.pointerId);
    one.node.focus({ preventScroll: true });
    one.node.classList.add("held");
  });
  no_fling(layer, "[role=slider]");
  layer.addEventListener("pointermove", (event) => {
    if (dragged?.id !== event.pointerId) return;
    const moved = dragged.one.handle.moved(place(event, dragged.offset), dragged.begins);
    dragged.begins &&= moved === false;
  });
  const release = () => {
    dragged?.one.node.classList.remove("held");
    dragged = null;
  };
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"])
    layer.addEventListener(end, release);

  const press = (event, one) => {
    const arrow = ARROWS[event.key];
    if (!arrow || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (one.handle.pressed) {
      one.handle.pressed(arrow, event.shiftKey);
      return;
    }
    const stride = event.shiftKey ? 0.5 : 0.1;
    one.handle.moved(
      one.handle.at.map((value, a) =>
        within(Math.round((within(value) + stride * arrow[a]) * 100) / 100),
      ),
      true,
    );
  };

  return {
    show(handles) {
      const wanted = new Set(handles.map((handle) => handle.key));
      for (const [key, { node }] of kept) {
        if (wanted.has(key)) continue;
        node.remove();
        kept.delete(key);
      }
      for (const handle of handles) {
        let one = kept.get(handle.key);
        if (!one) {
          one = {
            node: html("div", {
              class: "handle",
              role: "slider",
              tabindex: 0,
              "aria-roledescription": "handle in the plane",
            }),
          };
          const made = one;
          made.node.addEventListener("keydown", (event) => press(event, made));
          layer.append(made.node);
          kept.set(handle.key, made);
        }
        one.handle = handle;
        if (one.look !== (handle.look ?? "")) {
          one.look = handle.look ?? "";
          const half = REACH / 2;
          one.node.replaceChildren(
            svg(
              "svg",
              { viewBox: `${-half} ${-half} ${REACH} ${REACH}`, "aria-hidden": "true" },
              handle.draw(0, 0),
            ),
          );
        }
        const [x, y] = handle.at;
        const outside = Math.max(Math.abs(x), Math.abs(y)) > edge;
        one.node.style.left = percent(x);
        one.node.style.top = percent(-y);
        one.node.classList.toggle("outside", outside);
        const [least, most, now] = handle.range ?? [-edge, edge, within(x)];
        const words =
          handle.said ??
          `${digits(x)} across, ${digits(y)} up${outside ? ", outside the picture" : ""}`;
        one.node.setAttribute("aria-label", handle.name);
        one.node.setAttribute("aria-valuemin", least);
        one.node.setAttribute("aria-valuemax", most);
        one.node.setAttribute("aria-valuenow", now.toFixed(2));
        one.node.setAttribute("aria-valuetext", words);
      }
    },
  };
}
