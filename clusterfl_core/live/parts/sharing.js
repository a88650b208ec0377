// Share a state by address or as text, and copy it as Python.

import { unwritten, written } from "./address.js";
import { button } from "./controls.js";
import { html } from "./dom.js";

// describe(): the description now; python(description): its lines; read(text): takes a state over
// and says so in a sentence, or null where not all of it could be played, or throws; told(sentence,
// bad); heard(sentence): speaks what is seen here; mark: the part of the address that names this
// laboratory, or null where the address is not the book's own.
// → {node, arrive()}
export function make_sharing({ describe, python, read, told, heard, mark }) {
  const text = html("textarea", { rows: 6, spellcheck: "false", "aria-label": "Text" });
  const title = html("p");
  const copy = button("Copy the text", () => {
    text.select();
    const copied = () => told("Copied.");
    const by_hand = () =>
      told(
        document.execCommand?.("copy")
          ? "Copied."
          : "Your browser does not let this page copy: the text is marked, copy it yourself.",
      );
    if (navigator.clipboard) navigator.clipboard.writeText(text.value).then(copied, by_hand);
    else by_hand();
  });
  const load = button("Load the text", () => take(text.value));
  const panel = html(
    "div",
    { class: "panel", hidden: true },
    title,
    text,
    html("div", { class: "buttons" }, copy, load),
  );

  const open = (words, value, loads) => {
    panel.hidden = false;
    title.textContent = words;
    text.value = value;
    load.hidden = !loads;
    text.setAttribute("aria-label", words);
    heard(words);
  };

  const share_it = button("Share", () => {
    const state = written(describe());
    if (mark === null)
      return open("The state as text. Send it, or paste one here and load it.", state, true);
    history.replaceState(null, "", `#${mark}=${state}`);
    return open(
      "The state now stands in the address of this page. Send it, or paste one here and load it.",
      location.href,
      true,
    );
  });
  const as_code = button("Copy as Python", () =>
    open(
      describe().rounds === 0 ? "The first round in Python:" : "The same run in Python:",
      python(describe()),
      false,
    ),
  );

  // A bare state, or an address that holds one.
  function take(given) {
    try {
      const bare = given.includes("=") ? given.slice(given.lastIndexOf("=") + 1) : given;
      const sentence = read(unwritten(bare));
      if (sentence !== null) told(sentence);
    } catch (error) {
      const why = error.message[0].toUpperCase() + error.message.slice(1);
      told(`Not loaded. ${why}. The laboratory stays as it was.`, true);
    }
  }

  return {
    node: html(
      "section",
      { "aria-label": "Keep and share" },
      html("div", { class: "buttons" }, share_it, as_code),
      panel,
    ),
    // What the page's own address brings.
    arrive() {
      if (mark !== null && location.hash.startsWith(`#${mark}=`)) take(location.hash);
    },
  };
}
