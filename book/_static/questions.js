// Predictions, checks and the reader's progress. A page without this script shows plain <details>.
(() => {
  const KEPT = "clustered-federated-learning"; // in the reader's browser, nowhere else
  const GUESSED = "After your guess";

  const make = (tag, settings, ...inside) => {
    const made = Object.assign(document.createElement(tag), settings);
    made.append(...inside);
    return made;
  };

  // {page: {guesses: {question: guess}, answered: [number, …], checks: how many}}
  const read = () => {
    try {
      const kept = Object.entries(JSON.parse(localStorage.getItem(KEPT)));
      return Object.fromEntries(kept.filter(([, page]) => page?.guesses && page.answered));
    } catch {
      return {}; // nothing yet, nothing readable, or the browser forbids it
    }
  };
  const keep = (pages) => {
    try {
      localStorage.setItem(KEPT, JSON.stringify(pages));
    } catch {
      // then nothing is remembered
    }
  };

  const root = new URL(document.documentElement.dataset.content_root ?? "./", location.href);
  const name = (address) => new URL(address, location.href).pathname.slice(root.pathname.length);
  const here = name(location.href);
  const note = (change) => {
    const pages = read();
    change((pages[here] ??= { guesses: {}, answered: [], checks: 0 }));
    keep(pages);
    mark();
  };

  // ------------------------------------------------------------ progress, in the contents

  const mark = () => {
    const pages = read();
    for (const link of document.querySelectorAll(".bd-links a.reference.internal")) {
      const page = pages[name(link.href)];
      link.querySelector(".progress-mark")?.remove();
      if (!page) continue;
      const share = page.checks ? `${page.answered.length}/${page.checks}` : "";
      const said = page.checks ? `, ${page.answered.length} of ${page.checks} checks answered` : "";
      const seen = make("span", { ariaHidden: "true" }, `✓ ${share}`);
      const heard = make("span", { className: "visually-hidden" }, `(opened${said})`);
      link.append(make("span", { className: "progress-mark" }, seen, heard));
    }
    const told = document.querySelector(".progress-note");
    if (told) told.hidden = !Object.keys(pages).length;
  };

  const tell = () => {
    const contents = document.querySelector(".bd-links");
    if (!contents) return;
    const forget = make("button", { type: "button" }, "Delete them");
    forget.addEventListener("click", () => {
      try {
        localStorage.removeItem(KEPT);
      } catch {
        // nothing was kept
      }
      mark();
    });
    const text = "Pages you opened (✓), checks you answered and your guesses are kept in this browser only. ";
    contents.after(make("p", { className: "progress-note", hidden: true }, text, forget));
  };

  // ------------------------------------------------------------ predictions

  const body = (quote) => quote.querySelector(":scope > div") ?? quote;
  const asks = (quote) => {
    const first = body(quote).querySelector(":scope > p:first-child > strong:first-child");
    return first?.textContent === "Predict.";
  };
  const answers = (fold) =>
    fold.querySelector(":scope > summary")?.textContent.trim().startsWith(GUESSED);

  const predictions = (article) => {
    const found = [];
    for (const part of article.querySelectorAll("blockquote, details")) {
      if (part.matches("blockquote") && asks(part)) found.push({ quote: part, folds: [] });
      else if (part.matches("details") && answers(part)) found.at(-1)?.folds.push(part);
    }
    return found.filter(({ folds }) => folds.length);
  };

  const predict = ({ quote, folds }, number) => {
    const question = quote.textContent.trim(); // what is kept belongs to these words
    const list = body(quote).querySelector(":scope > ul");
    const form = make("form", { className: "guess-form" });
    const choices = [...(list?.children ?? [])].map((item, place) => {
      const radio = make("input", { type: "radio", name: `guess-${number}`, value: place });
      const words = make("span", {}, ...(item.querySelector(":scope > p") ?? item).childNodes);
      form.append(make("label", { className: "choice" }, radio, words));
      return { radio, words };
    });
    const own = make("textarea", { rows: 2, maxLength: 2000 });
    if (list) list.replaceWith(form);
    else form.append(make("label", {}, "Your guess", own));
    const status = make("span", { className: "status" });
    status.setAttribute("role", "status");
    form.append(make("div", { className: "act" }, make("button", {}, "That is my guess"), status));
    body(quote).append(form);
    quote.classList.add("prediction");

    const given = () => (list ? form.elements[`guess-${number}`].value : own.value.trim());
    const show = (open) => {
      const words = list ? choices[given()].words.cloneNode(true) : make("span", {}, given());
      const label = make("strong", {}, "Your guess:");
      document.querySelector(`[data-guess="${number}"]`)?.remove();
      const beside = make("div", { className: "guess" }, label, " ", words);
      beside.dataset.guess = number;
      folds[0].querySelector(":scope > summary").after(beside);
      if (open) for (const fold of folds) fold.open = true;
      form.querySelector("button").textContent = "Change my guess";
    };

    const before = read()[here]?.guesses[question];
    if (before !== undefined) {
      if (!list) own.value = before;
      else if (choices[before]) choices[before].radio.checked = true;
      if (given()) show(false);
    }
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (!given()) {
        status.textContent = `First ${list ? "choose" : "write"} a guess; a wrong one teaches as much.`;
        return;
      }
      show(true);
      note((page) => (page.guesses[question] = given()));
      status.textContent = `Kept, and “${folds[0].querySelector("summary").textContent.trim()}” is open.`;
    });
  };

  // ------------------------------------------------------------ checks

  const checks = (article) => {
    const found = [];
    for (const section of article.querySelectorAll("section[id^='check-yourself']")) {
      let open = null;
      for (const part of section.children) {
        if (part.matches("p") && /^\d+\./.test(part.querySelector(":scope > strong")?.textContent))
          found.push((open = { question: part, options: [] }));
        else if (part.matches("details")) open?.options.push(part);
        else open = null;
      }
    }
    return found.filter(({ options }) => options.length > 1);
  };

  const shuffled = (all) => {
    for (let last = all.length - 1; last > 0; last--) {
      const other = Math.floor(Math.random() * (last + 1));
      [all[last], all[other]] = [all[other], all[last]];
    }
    return all;
  };

  const check = ({ question, options }, number) => {
    const box = make("div", { className: "check" });
    question.id ||= `check-${number}`;
    box.setAttribute("role", "group");
    box.setAttribute("aria-labelledby", question.id);
    question.before(box);
    box.append(question);
    const rows = options.map((fold) => {
      const summary = fold.querySelector(":scope > summary");
      const radio = make("input", { type: "radio", name: `check-${number}` });
      const words = make("span", {}, ...summary.childNodes);
      summary.remove();
      const feedback = make("div", { className: "feedback", hidden: true }, ...fold.childNodes);
      fold.remove();
      const right = feedback.textContent.trim().startsWith("Yes.");
      const row = make("div", { className: "option" });
      row.append(make("label", { className: "choice" }, radio, words), feedback);
      return { radio, feedback, right, row };
    });
    for (const { row } of shuffled([...rows])) box.append(row);
    const button = make("button", { type: "button" }, "Answer");
    const status = make("span", { className: "status" });
    status.setAttribute("role", "status");
    box.append(make("div", { className: "act" }, button, status));

    const reveal = ({ row, feedback, right }) => {
      feedback.hidden = false;
      row.classList.add(right ? "right" : "wrong");
    };
    button.addEventListener("click", () => {
      const chosen = rows.find(({ radio }) => radio.checked);
      if (!chosen) {
        status.textContent = "First choose an answer.";
      } else if (button.classList.contains("rest")) {
        rows.forEach(reveal);
        button.hidden = true;
        status.textContent = "";
      } else {
        reveal(chosen);
        note((page) => (page.answered = [...new Set([...page.answered, number])]));
        status.textContent = chosen.right
          ? "Right."
          : "Not this one. Read why, answer the second question, and choose again.";
        if (chosen.right) {
          button.classList.add("rest");
          button.textContent = "Why are the others wrong?";
        }
      }
    });
  };

  // ------------------------------------------------------------ the page

  document.addEventListener("DOMContentLoaded", () => {
    const article = document.querySelector("article.bd-article");
    const links = [...document.querySelectorAll(".bd-links a.reference.internal")];
    const link = links.find(({ href }) => name(href) === here);
    tell();
    if (!article || !link) return mark(); // the search page, say
    const short = /^(\d+|[A-Z]) (.+)$/.exec(link.textContent.trim());
    if (short) {
      const kind = /\d/.test(short[1]) ? "Chapter" : "Appendix";
      const text = `${kind} ${short[1]} · ${short[2]}`;
      article.querySelector("h1")?.before(make("p", { className: "chapter-name" }, text));
    }
    predictions(article).forEach((one, i) => predict(one, i + 1));
    const asked = checks(article);
    asked.forEach((one, i) => check(one, i + 1));
    note((page) => (page.checks = asked.length));
  });
})();
