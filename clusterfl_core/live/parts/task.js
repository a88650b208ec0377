// A task whose success is noticed.

import { html } from "./dom.js";

// → {node, show(sentence, solved)}
export function make_task(question) {
  const sign = html("span", { class: "sign", "aria-hidden": "true" }, "☐");
  const progress = html("p", { class: "progress" });
  const heard = html("p", { class: "spoken", "aria-live": "polite" }); // the success, once
  const node = html(
    "section",
    { class: "task", "aria-label": "Task" },
    html("p", {}, sign, html("strong", {}, question)),
    progress,
    heard,
  );
  return {
    node,
    show(sentence, solved) {
      sign.textContent = solved ? "☑" : "☐";
      node.classList.toggle("solved", solved);
      progress.textContent = sentence;
      progress.ariaHidden = solved ? "true" : null; // a success is read once, from what is heard
      const said = solved ? sentence : "";
      if (heard.textContent !== said) heard.textContent = said;
    },
  };
}
