// Step, Play, Undo, Reset.

import { button } from "./controls.js";
import { html } from "./dom.js";

const PACE = 500; // milliseconds a round

// rest(run): true when playing on shows nothing new; back: whether there is a way back; more: further
// buttons. → {node, stop(), start(), show(run), playing}
export function make_player(run, { rest, told = () => {}, back = true, more = [] }) {
  let timer = 0;
  let first = false;
  const play = button("Play", () => (timer ? player.stop() : player.start()), { class: "main" });
  const one = button("Step", () => {
    player.stop();
    run().step();
    told();
  });
  const undo = button("Undo", () => {
    player.stop();
    run().undo();
    told();
  });
  const reset = button("Reset", () => {
    player.stop();
    run().reset();
    told();
  });
  reset.title = "To the first round; from there: to how it began";
  const player = {
    node: html(
      "div",
      { class: "buttons", role: "group", "aria-label": "Rounds" },
      play,
      one,
      ...more,
      ...(back ? [undo, reset] : []),
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
