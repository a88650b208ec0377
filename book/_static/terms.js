// A term of a formula and the code that computes it: touch one, and both light up.
window.addEventListener("load", async () => {
  const asked = [...document.querySelectorAll("script.terms")];
  if (!asked.length) return;
  await window.MathJax?.startup?.promise;
  const make = (tag, settings, ...inside) => {
    const made = Object.assign(document.createElement(tag), settings);
    made.append(...inside);
    return made;
  };

  // Wraps a piece of a block's text, which may go over several elements; → the wrappers.
  const wrapped = (block, piece) => {
    const start = block.textContent.indexOf(piece);
    const walker = document.createTreeWalker(block, NodeFilter.SHOW_TEXT);
    const parts = [];
    let before = 0;
    while (walker.nextNode()) {
      const text = walker.currentNode;
      const from = Math.max(0, start - before);
      const to = Math.min(text.length, start + piece.length - before);
      before += text.length;
      if (from < to) parts.push([text, from, to]);
    }
    return parts.map(([text, from, to]) => {
      const middle = from ? text.splitText(from) : text;
      if (to - from < middle.length) middle.splitText(to - from);
      const wrapper = make("span", { className: "term" });
      middle.replaceWith(wrapper);
      wrapper.append(middle);
      return wrapper;
    });
  };

  for (const script of asked) {
    const { cell, terms } = JSON.parse(script.textContent);
    const pieces = terms.flatMap(({ code }) => code);
    const later = [...document.querySelectorAll(".cell_input pre")].filter(
      (block) => script.compareDocumentPosition(block) & Node.DOCUMENT_POSITION_FOLLOWING,
    );
    const block = later.find(({ textContent }) => pieces.every((piece) => textContent.split(piece).length === 2));
    if (!block) continue;
    const list = make("ul", { className: "terms-told" });
    terms.forEach(({ tex, code, words }, n) => {
      const formula = [...document.querySelectorAll(`.term-${cell}-${n}`)];
      const both = [...formula, ...code.flatMap((piece) => wrapped(block, piece))];
      const light = (on) => {
        for (const part of document.querySelectorAll(".lit")) part.classList.remove("lit");
        if (on) for (const part of both) part.classList.add("lit");
      };
      const name = make("button", { type: "button" }, `${words}: `, make("code", {}, code.join(" … ")));
      for (const part of [...both, name]) {
        part.addEventListener("pointerenter", () => light(true));
        part.addEventListener("pointerleave", () => light(false));
      }
      name.addEventListener("focus", () => light(true));
      name.addEventListener("blur", () => light(false));
      list.append(make("li", {}, name));
    });
    const fold = make("details", { className: "terms-fold" });
    fold.append(make("summary", {}, "Term by term: touch a part of the formula or of the code"), list);
    script.after(fold);
  }
});
