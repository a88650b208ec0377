// A laboratory as an element of the page, with a shadow tree of its own.

import { html } from "./dom.js";
import { STYLE } from "./style.js";

// build(live, settings, element), piece by piece, fills the laboratory and brings what stops it.
export function define(name, title, build) {
  if (typeof customElements === "undefined") return; // in a worker
  class Laboratory extends HTMLElement {
    #stop = () => {};

    connectedCallback() {
      this.dataset.lmSuppressShortcuts = "true"; // else JupyterLab takes the arrow keys
      const root = this.shadowRoot ?? this.attachShadow({ mode: "open" });
      const live = html("div", {
        class: "live",
        role: "group",
        "aria-label": `Laboratory: ${title}`,
      });
      root.replaceChildren(html("style", {}, STYLE), live, html("slot"));
      this.busy = true;
      let here = true;
      let end = () => {};
      this.#stop = () => {
        here = false;
        end();
      };
      build(live, JSON.parse(this.getAttribute("settings")), this).then((stop) => {
        end = stop;
        if (!here) stop();
      });
    }

    disconnectedCallback() {
      this.#stop();
    }
  }
  customElements.define(`cfl-${name}`, Laboratory);
}

// What a reader only passes with mouse or finger down is shown, and not kept. let_go() when it is up
// again. → {down, stop()}
export function make_hold(live, let_go) {
  const ends = ["pointerup", "pointercancel"];
  const hold = {
    down: false,
    stop: () => ends.forEach((end) => removeEventListener(end, up)),
  };
  function up() {
    if (!hold.down) return;
    hold.down = false;
    let_go();
  }
  live.addEventListener("pointerdown", () => {
    hold.down = true;
  });
  ends.forEach((end) => addEventListener(end, up));
  return hold;
}

// The part of the page's address that is this laboratory's, or null where the address is not the
// book's own.
export function mark_of(element) {
  if (!element.hasAttribute("address")) return null;
  const number = [...document.querySelectorAll(element.localName)].indexOf(element);
  return `${element.localName}-${number}`;
}
