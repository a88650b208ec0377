// What the laboratory says, politely: spoken always, seen where it stands nowhere else.

import { html } from "./dom.js";

// → {node, say(sentence, seen), warn(sentence)}
export function make_sentences() {
  const line = html("p", { class: "message spoken", role: "status" });
  const put = (sentence, look) => {
    line.className = look;
    line.textContent = sentence;
  };
  return {
    node: line,
    say(sentence, seen = true) {
      put(sentence, seen ? "message" : "message spoken");
    },
    warn(sentence) {
      put(`⚠ ${sentence}${/[.!?]$/.test(sentence) ? "" : "."}`, "message warning");
    },
  };
}
