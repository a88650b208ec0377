// What all laboratories are made of, but for their picture: a state (fields.js), undo, sentences,
// sharing, a task, the player where there are rounds.

import { button } from "./controls.js";
import { breath, html } from "./dom.js";
import { define, make_hold, mark_of } from "./element.js";
import { checked_state, control_of, read_state } from "./fields.js";
import { Keeping } from "./keeping.js";
import { make_player } from "./player.js";
import { make_readings } from "./readings.js";
import { make_sentences } from "./sentences.js";
import { make_sharing } from "./sharing.js";
import { make_task } from "./task.js";

const LOADING = "Loaded. Its rounds are played.";

// plan:
//   title             what it is called
//   compute(state, path) → found: all that follows from the state, or an Error with a sentence
//   prepare(state)    a generator: what `compute` and the first picture need, a piece after each yield, done
//                     and kept piece by piece while the page opens
//   first, next       with rounds: see keeping.js
//   rest(state, found, path)   with rounds: whether playing on shows nothing new
//   changes           {name: (value, state) → entries}: what a control changes beside its own entry
//   told(state, found, path) → the state in a sentence or two, seen and spoken
//   readings(state, found, path) → [[words, value, decimals, unit] …], see readings.js
//   python(state, found) → lines that print the numbers of the readings, in their order
//   task(state, found, path, memory) → [sentence, solved, part]; memory is an object to keep things in,
//                     part what a reader has reached on the way there, or null
//   waiting(state, path) → what stands in place of the task while rounds are played, or null
//   rewinds           whether the first round alone is worth a way back: true unless it says false
//   buttons(lab) → further buttons beside Undo, Rewind and Reset
//   build(lab) → {main, side, below, key, show(keeping)}: lists of nodes, a sentence that says what
//                is seen, and what draws
// lab: {keeping, change(parts, begins), act(work), step(parts), control(entry, which) → node,
//      say(sentence)}; which(state): for a list, the place of the number that the slider moves
export function laboratory(name, plan) {
  define(name, plan.title, async (live, { state, task: question }, element) => {
    const opening = checked_state(state);
    for (const _ of plan.prepare?.(opening) ?? []) await breath();
    let keeping = null;
    let failing = false;
    const controls = [];
    const memory = {};
    const sentences = make_sentences();
    const status = html("p", { class: "state" });
    const readings = make_readings();
    const task = question ? make_task(question) : null;

    let spoken = null; // the state as it was last said
    const told = () => {
      if (failing) return;
      spoken = status.textContent;
      sentences.say(spoken, false);
    };
    const act = (work) => {
      player?.stop();
      failing = false;
      work();
      told();
    };
    const lab = {
      get keeping() {
        return keeping;
      },
      act,
      say: (sentence, seen) => sentences.say(sentence, seen),
      change: (parts, begins = true) => act(() => keeping.change(parts, begins)),
      step: (parts) => act(() => keeping.step(true, parts)),
      control(entry, which = null) {
        const more = plan.changes?.[entry] ?? (() => ({}));
        const control = control_of(entry, (given, begins) => {
          const now = keeping.state;
          const value = which
            ? now[entry].map((one, at) => (at === which(now) ? given : one))
            : given;
          lab.change({ [entry]: value, ...more(value, now) }, begins);
        });
        const set = (now) => control.set(which ? now[entry][which(now)] : now[entry]);
        controls.push(set);
        return control.node;
      },
    };

    const more = plan.buttons?.(lab) ?? [];
    const player = plan.next
      ? make_player(() => keeping, {
          rest: ({ state: now, found, path }) => plan.rest(now, found, path),
          told,
          rewinds: plan.rewinds ?? true,
          more,
        })
      : null;
    player?.node.addEventListener(
      "click",
      () => {
        failing = false;
      },
      { capture: true },
    );
    const undo = button("Undo", () => act(() => keeping.undo()));
    const reset = button("Reset", () => act(() => keeping.reset()));
    const ways = player?.node ?? html("div", { class: "buttons" }, ...more, undo, reset);
    const sharing = make_sharing({
      describe: () => keeping.state,
      python: (now) => plan.python(now, keeping.found),
      read: (text) => {
        const found = read_state(text);
        act(() => keeping.change(found));
        if (failing) return null;
        return keeping.busy ? LOADING : "Loaded.";
      },
      told: (sentence, bad) => (bad ? sentences.warn(sentence) : sentences.say(sentence)),
      heard: (sentence) => sentences.say(sentence, false),
      mark: mark_of(element),
    });

    const hold = make_hold(live, () => {
      if (task && !keeping.busy) judge(keeping);
    });
    const judge = (now) => {
      const kept = hold.down ? structuredClone(memory) : memory;
      task.show(...plan.task(now.state, now.found, now.path, kept));
    };

    await breath();
    const { main, side, below = [], key, show } = plan.build(lab);
    await breath();
    keeping = new Keeping(
      opening,
      plan,
      (now) => {
        controls.forEach((set) => set(now.state));
        undo.disabled = !now.can_undo;
        player?.show(now);
        status.textContent = plan.told(now.state, now.found, now.path);
        readings.show(plan.readings(now.state, now.found, now.path));
        show(now);
        const done = element.busy && !now.busy && !player?.playing;
        element.busy = now.busy;
        const last = sentences.node.textContent;
        if (done && (last === spoken || last === LOADING)) told(); // what was said is out of date
        if (!task) return;
        const waiting = now.busy ? plan.waiting?.(now.state, now.path) : null;
        if (waiting) task.wait(waiting);
        else if (!now.busy) judge(now);
      },
      (sentence) => {
        failing = true;
        player?.stop();
        sentences.warn(sentence);
      },
    );
    await breath();
    live.append(
      ...(task ? [task.node] : []),
      html(
        "div",
        { class: "two" },
        html("div", { class: "side" }, ...main, ways, status, sentences.node),
        html("div", { class: "side" }, ...side, readings.node),
      ),
      html("p", { class: "key" }, key),
      ...below,
      sharing.node,
    );

    keeping.begin();
    told();
    const arrive = () => sharing.arrive();
    arrive();
    addEventListener("hashchange", arrive);
    return () => {
      removeEventListener("hashchange", arrive);
      hold.stop();
      player?.stop();
    };
  });
}
