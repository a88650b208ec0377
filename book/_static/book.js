/* What the theme leaves out for readers who use a keyboard or a screen reader. */
window.addEventListener("load", () => {
  // A label that differs from the text one sees cannot be spoken to; the text itself is the name.
  for (const named of document.querySelectorAll(".search-button-field, summary[aria-label]"))
    named.removeAttribute("aria-label");
  const button = document.querySelector(".theme-switch-button");
  const quiet = () => {
    for (const icon of button.children) {
      icon.setAttribute("aria-hidden", "true");
      icon.removeAttribute("aria-labelledby");
      icon.removeAttribute("title");
      icon.querySelector("title")?.remove();
    }
  };
  new MutationObserver(quiet).observe(button, { childList: true }); // icons become pictures late
  quiet();

  // A table that scrolls sideways can be reached by the keyboard, and so can a formula in a line
  // that is wider than the line.
  const reach = () => {
    for (const box of document.querySelectorAll(".pst-scrollable-table-container"))
      box.tabIndex = box.scrollWidth > box.clientWidth ? 0 : -1;
    const formulas = [...document.querySelectorAll(".bd-article :not(td, th) > span.math")];
    const wide = formulas.map((formula) => {
      const line = formula.closest("p, li, dd, summary, div").clientWidth;
      return formula.firstElementChild?.getBoundingClientRect().width > line;
    });
    formulas.forEach((formula, i) => formula.classList.toggle("wide-math", wide[i]));
  };
  reach();
  window.MathJax?.startup?.promise.then(reach);
  window.addEventListener("resize", reach);
  document.addEventListener("toggle", reach, true); // a fold has no widths before it is open
});

// A caption, a text of its own in a notebook, is told from the text around it.
document.addEventListener("DOMContentLoaded", () => {
  for (const text of document.querySelectorAll(".bd-article p")) {
    const first = text.firstChild;
    if (first?.nodeName === "EM" && /^(Figure|Table) \w+\.\d/.test(first.textContent))
      text.classList.add("figure-text");
  }
});

// A minus before a number is one, and what follows ± stays on its line.
document.addEventListener("DOMContentLoaded", () => {
  for (const text of document.querySelectorAll(".bd-article :is(td, p, li)")) {
    const words = document.createTreeWalker(text, NodeFilter.SHOW_TEXT);
    while (words.nextNode()) {
      const { data, parentElement } = words.currentNode;
      if (parentElement.closest("code, pre, .math")) continue;
      const minus = data.replace(/(^|[\s(])-(?=\.?\d)/g, "$1−");
      words.currentNode.data = minus.replace(/± (?=\d)/g, "±\u00a0");
    }
  }
});

// A formula and the comma after it, or the bracket before it, stand on one line.
document.addEventListener("DOMContentLoaded", () => {
  for (const formula of document.querySelectorAll(".bd-article span.math")) {
    const [before, after] = [formula.previousSibling, formula.nextSibling]; // only texts have data
    const start = before?.data?.match(/[(\[“‘]+$/)?.[0] ?? "";
    const end = after?.data?.match(/^[)\],.;:!?”’]+/)?.[0] ?? "";
    if (!start && !end) continue;
    const line = Object.assign(document.createElement("span"), { className: "one-line" });
    formula.before(line);
    line.append(start, formula, end);
    if (start) before.data = before.data.slice(0, -start.length);
    if (end) after.data = after.data.slice(end.length);
  }
});

// A link to a fold opens it, and shows it where the filters of the ledger hide it.
const arrive = () => {
  const fold = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (fold?.nodeName !== "DETAILS") return;
  if (!fold.checkVisibility?.()) document.getElementById("claims")?.reset();
  for (let one = fold; one; one = one.parentElement?.closest("details")) one.open = true;
  fold.scrollIntoView();
};
window.addEventListener("hashchange", arrive);
document.addEventListener("DOMContentLoaded", arrive);

// Paper is light, and on it nothing can be unfolded. The code that draws a figure stays away.
const paper = matchMedia("print");
let before = null;
const prepare = () => {
  if (before) return;
  const page = document.documentElement;
  const folds = [...document.querySelectorAll(".bd-article details:not([open])")];
  before = {
    theme: page.dataset.theme,
    folds: folds.filter((fold) => !fold.closest(".tag_hide-input, .tag_setup")),
  };
  page.dataset.theme = "light";
  for (const fold of before.folds) fold.open = true;
};
const restore = () => {
  if (!before) return;
  document.documentElement.dataset.theme = before.theme;
  for (const fold of before.folds) fold.open = false;
  before = null;
};
paper.addEventListener("change", () => (paper.matches ? prepare() : restore()));
window.addEventListener("beforeprint", prepare);
window.addEventListener("afterprint", restore);
