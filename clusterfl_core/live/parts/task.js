// A task whose success is noticed, and each part of it on the way there.

import { html } from "./dom.js";

// → {node, show(sentence, solved, part), wait(sentence)}; part: what was reached on the way, a text, or
// null. Success and each part are heard once, and what was just heard is not read again.
export function make_task(question) {
  const sign = html("span", { class: "sign", "aria-hidden": "true" }, "☐");
  const progress = html("p", { class: "progress" });
  const heard = html("p", { class: "spoken", "aria-live": "polite" });
  const node = html(
    "section",
    { class: "task", "aria-label": "Task" },
    html("p", {}, sign, html("strong", {}, question)),
    progress,
    heard,
  );
  const reached = new Set();
  let success = null; // as it was heard last
  let opening = true; // what the laboratory begins with is nobody's success

  const put = (sentence, solved) => {
    sign.textContent = solved ? "☑" : "☐";
    node.classList.toggle("solved", solved);
    progress.textContent = sentence;
  };
  const hear = (sentence) => {
    if (heard.textContent !== sentence) heard.textContent = sentence;
    progress.ariaHidden = sentence ? "true" : null;
  };

  return {
    node,
    show(sentence, solved, part = null) {
      put(sentence, solved);
      const news = solved ? sentence !== success : part !== null && !reached.has(part);
      if (part !== null) reached.add(part);
      success = solved ? sentence : null;
      if (news && !(opening && !solved)) hear(sentence);
      else if (heard.textContent !== sentence) hear("");
      opening = false;
    },
    // While nothing can be judged.
    wait(sentence) {
      put(sentence, false);
      hear("");
    },
  };
}
