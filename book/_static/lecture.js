// One key, L, turns a page into full-screen steps from the same file: a heading with its text, a
// figure with its caption, a laboratory, a prediction, a check.
(() => {
  const make = (tag, settings, ...inside) => {
    const made = Object.assign(document.createElement(tag), settings);
    made.append(...inside);
    return made;
  };
  const ALONE = ".cf-figure, .widget-subarea, .cell_output img";
  const laboratory = (block) =>
    [block, ...block.querySelectorAll("*")].some(({ localName }) => localName.startsWith("cfl-"));

  // ------------------------------------------------------------ the steps of a page

  // The blocks of the page in their order; sections are only their frames.
  const blocks_of = (section) =>
    [...section.children].flatMap((child) => (child.matches("section") ? blocks_of(child) : [child]));

  const kind_of = (block) => {
    if (/^H[1-6]$/.test(block.nodeName)) return "heading";
    if (block.matches(".check, .prediction")) return "question";
    if (laboratory(block)) return "laboratory";
    if (block.matches(".cell") && block.querySelector(ALONE)) return "figure";
    const caption = block.querySelector("p.figure-text");
    return caption || block.matches("p.figure-text") ? "caption" : "text";
  };

  // Text and captions stay with what they follow, and the outcome of a prediction with it.
  const steps_of = (article) => {
    const steps = [];
    for (const block of blocks_of(article)) {
      const kind = kind_of(block);
      const before = steps.at(-1);
      const follows =
        kind === "caption" ||
        (kind === "text" && before?.kind === "heading") ||
        (block.matches("details") && before?.kind === "question") ||
        (kind === "heading" && before?.blocks.every((one) => kind_of(one) === "heading")) ||
        (block.matches(".chapter-name + h1") && before);
      if (before && follows) before.blocks.push(block);
      else if (before && kind === "text" && before.kind === "text") before.blocks.push(block);
      else steps.push({ kind: block.matches(".chapter-name") ? "heading" : kind, blocks: [block] });
    }
    return steps.filter(({ blocks }) => blocks.some((block) => block.getClientRects().length));
  };

  // ------------------------------------------------------------ on the screen

  let steps = null; // while a lecture runs
  let place = 0;
  const page = document.documentElement;
  const count = make("span", {});
  const button = (sign, name, act) => {
    const made = make("button", { type: "button", ariaLabel: name, title: name }, sign);
    made.addEventListener("click", act);
    return made;
  };
  const bar = make("div", { className: "lecture-bar" });
  count.setAttribute("role", "status");

  // As large as the width allows; what is looked at as a whole is made smaller until it fits.
  const fit = () => {
    const zoom = (value) => page.style.setProperty("--lecture-zoom", value);
    const wide = Math.max(1, Math.min(2.4, innerWidth / 800));
    zoom(wide);
    const tall = steps[place].blocks.reduce((sum, block) => sum + block.getBoundingClientRect().height, 100);
    if (steps[place].kind !== "heading" && steps[place].kind !== "text")
      zoom(Math.max(1, wide * Math.max(0.55, Math.min(1, innerHeight / tall))));
  };
  const show = (next) => {
    place = Math.max(0, Math.min(next, steps.length - 1));
    for (const [number, { blocks }] of steps.entries())
      for (const block of blocks) block.classList.toggle("lecture-now", number === place);
    count.textContent = `${place + 1} of ${steps.length}`;
    fit();
    scrollTo(0, 0);
    window.dispatchEvent(new Event("resize")); // what measures itself does so anew
  };
  // A step that is taller than the screen is scrolled through first.
  const forward = () => {
    const rest = page.scrollHeight - innerHeight - scrollY;
    if (rest > 4) scrollBy(0, Math.min(rest, 0.8 * innerHeight));
    else show(place + 1);
  };
  const back = () => {
    if (scrollY > 4) scrollBy(0, -0.8 * innerHeight);
    else show(place - 1);
  };

  const begin = () => {
    const article = document.querySelector("article.bd-article");
    const found = article ? steps_of(article) : [];
    if (!found.length) return;
    const seen = found.findLastIndex(({ blocks }) => blocks[0].getBoundingClientRect().top < innerHeight / 2);
    steps = found;
    page.classList.add("lecture");
    document.body.append(bar);
    page.requestFullscreen?.().catch(() => {}); // where it is refused, the window serves
    show(Math.max(0, seen));
  };
  const end = () => {
    if (!steps) return;
    const [first] = steps[place].blocks;
    for (const { blocks } of steps) for (const block of blocks) block.classList.remove("lecture-now");
    steps = null;
    page.classList.remove("lecture");
    bar.remove();
    if (document.fullscreenElement) document.exitFullscreen();
    first.scrollIntoView();
  };
  bar.append(
    button("←", "One step back (←)", () => show(place - 1)),
    count,
    button("→", "Next step (→ or space)", () => show(place + 1)),
    button("✕", "End the lecture (Esc)", end),
  );

  // ------------------------------------------------------------ keys

  // A key that a control understands is the control's own, also inside a laboratory.
  const PRESSED = "button, summary, a";
  const MOVED = "input, textarea, select, [role=slider], [tabindex]:not(main), [contenteditable]";
  const taken = (event) => {
    const on = (what) => event.composedPath().some((node) => node.matches?.(what));
    const other = event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented;
    return other || on(MOVED) || (event.key === " " && on(PRESSED));
  };
  const keys = {
    ArrowRight: forward, PageDown: forward, " ": forward, ArrowLeft: back, PageUp: back,
    Home: () => show(0), End: () => show(steps.length - 1), l: end, L: end,
  };
  window.addEventListener("keydown", (event) => {
    if (steps && event.key === "Escape") return end();
    if (taken(event)) return;
    if (!steps) return void (/^l$/i.test(event.key) && begin());
    if (!keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  document.addEventListener("fullscreenchange", () => {
    if (!document.fullscreenElement) end(); // the browser's own way out
  });
  window.addEventListener("resize", () => steps && fit());

  document.addEventListener("DOMContentLoaded", () => {
    const buttons = document.querySelector(".article-header-buttons");
    if (!buttons || !document.querySelector("article.bd-article h1")) return;
    const lecture = button("▷", "Lecture: this page in steps on the whole screen (key L)", begin);
    lecture.className = "btn btn-sm lecture-button";
    buttons.prepend(lecture);
  });
})();
