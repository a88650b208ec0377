// Play, Step, Undo, Rewind, Reset.

import { button } from "./controls.js";
import { html } from "./dom.js";

const PACE = 500; // milliseconds a round

// rest(run): true when playing on shows nothing new; back: whether there is a way back, rewinds: to the
// first round alone, too; more: further buttons. → {node, stop(), start(), show(run), playing}
export function make_player(run, { rest, told = () => {}, back = true, rewinds = true, more = [] }) {
  let timer = 0;
  let first = false;
  const play = button("Play", () => (timer ? player.stop() : player.start()), { class: "main" });
  const acting = (text, act, title = null) =>
    button(
      text,
      () => {
        player.stop();
        act(run());
        told();
      },
      { title },
    );
  const one = acting("Step", (now) => now.step());
  const undo = acting("Undo", (now) => now.undo());
  const ways = [
    undo,
    ...(rewinds ? [acting("Rewind", (now) => now.rewind(), "To the first round")] : []),
    acting("Reset", (now) => now.reset(), "To how the laboratory began"),
  ];
  const player = {
    node: html(
      "div",
      { class: "buttons", role: "group", "aria-label": "Rounds" },
      play,
      one,
      ...more,
      ...(back ? ways : []),
    ),
    get playing() {
      return timer !== 0;
    },
    start() {
      first = true;
      play.textContent = "Pause";
      timer = setInterval(player.tick, PACE);
      player.tick();
    },
    tick() {
      if (run().busy) return;
      const moved = run().step(first);
      first = false;
      if (!moved || rest(run())) {
        player.stop();
        told();
      }
    },
    stop() {
      clearInterval(timer);
      timer = 0;
      play.textContent = "Play";
    },
    show(shown_run) {
      undo.disabled = !shown_run.can_undo;
    },
  };
  return player;
}
