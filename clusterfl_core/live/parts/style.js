// One look for all laboratories. It takes font, colour and scheme from the page around it.

export const STYLE = `
:host {
  display: block;
  max-width: 46rem;
  margin: 1rem 0;
  container-type: inline-size;
  color: inherit;
  font: inherit;
  line-height: 1.4;
  background: transparent;
  --faint: color-mix(in srgb, currentColor 18%, transparent);
  --clear: color-mix(in srgb, currentColor 62%, transparent);
}
*,
::before,
::after { box-sizing: border-box; }
[hidden] { display: none !important; }
slot { display: none; }
p,
figure,
table { margin: 0; }
section,
.live { display: grid; gap: 0.6rem; grid-template-columns: minmax(0, 1fr); align-content: start; }
.live:empty { min-height: 36rem; }
.live { gap: 0.8rem; border: 1px solid var(--faint); border-radius: 8px; padding: 0.8rem; }
.two { display: grid; gap: 0.8rem; grid-template-columns: minmax(0, 1fr); align-items: start; }
.control {
  display: grid;
  grid-template-columns: 7.8em minmax(0, 1fr) 2.6em;
  gap: 0.4rem;
  align-items: center;
  min-height: 1.9rem;
}
.control .value { text-align: right; font-variant-numeric: tabular-nums; }
.control select { grid-column: 2 / 4; min-width: 0; }
@container (min-width: 34rem) {
  .two { grid-template-columns: minmax(0, 1.5fr) minmax(0, 1fr); }
  .two .control { grid-template-columns: minmax(0, 1fr) auto; gap: 0 0.4rem; }
  .two .control input { grid-row: 2; grid-column: 1 / 3; }
  .two .control select { grid-column: 1 / 3; }
}
.side { display: grid; gap: 0.5rem; min-width: 0; align-content: start; }
.small .plane { max-width: 25rem; }

.plane {
  position: relative;
  width: 100%;
  aspect-ratio: 1;
  user-select: none;
  -webkit-user-select: none;
}
.plane > svg {
  position: absolute;
  inset: 0;
  width: 100%;
  height: 100%;
  overflow: hidden;
  border: 1px solid var(--faint);
  border-radius: 4px;
}
.layer { position: absolute; inset: 0; pointer-events: none; }
.handle {
  position: absolute;
  width: 44px;
  height: 44px;
  margin: -22px 0 0 -22px;
  cursor: grab;
  touch-action: none;
  pointer-events: auto;
  border-radius: 50%;
  outline: none;
}
.handle > svg {
  position: absolute;
  inset: 0;
  width: 44px;
  height: 44px;
  overflow: visible;
  pointer-events: none;
}
.handle:focus-visible,
.handle.held { box-shadow: 0 0 0 2px currentColor; }
.handle.held { cursor: grabbing; }
.handle.outside > svg { opacity: 0.6; }
.glide .handle { transition: left 0.35s, top 0.35s; }
svg text { fill: currentColor; font-size: 12px; font-family: inherit; }
svg text.number { text-anchor: middle; font-weight: 700; }
svg text.name {
  font-weight: 700;
  font-size: 13px;
  paint-order: stroke;
  stroke: Canvas;
  stroke-width: 3px;
  stroke-linejoin: round;
}
.edge { stroke: currentColor; stroke-width: 1; }
.star { fill: none; stroke: currentColor; stroke-width: 1.5; }
.grid,
.axis { stroke: var(--faint); fill: none; }
.border { stroke: var(--clear); stroke-width: 1; fill-opacity: 0.13; }
.trail { fill: none; stroke-width: 2; stroke-linejoin: round; }
.ring { fill: none; stroke: currentColor; stroke-width: 1.2; stroke-dasharray: 2 2; }
.chart { display: block; width: 100%; overflow: visible; }
.chart .line { fill: none; stroke: currentColor; stroke-width: 1.6; }
.chart .dot,
.chart .hit { fill: currentColor; }
.chart .miss { fill: none; stroke: currentColor; }

button,
select,
textarea,
input { font: inherit; color: inherit; }
button,
select {
  min-height: 2.1rem;
  padding: 0.15rem 0.6rem;
  border: 1px solid var(--clear);
  border-radius: 6px;
  background: transparent;
  cursor: pointer;
}
select option { color: CanvasText; background: Canvas; }
button:hover:enabled { background: var(--faint); }
button:disabled { cursor: default; opacity: 0.45; }
button.main { font-weight: 700; min-width: 4.4em; }
button:focus-visible,
select:focus-visible,
input:focus-visible,
textarea:focus-visible,
summary:focus-visible { outline: 2px solid currentColor; outline-offset: 2px; }
.control.tick,
.two .control.tick { grid-template-columns: auto minmax(0, 1fr); }
.two .control.tick input { grid-row: auto; grid-column: auto; }
input[type="checkbox"] { width: 1.15rem; height: 1.15rem; margin: 0; accent-color: currentColor; }
.buttons { display: flex; flex-wrap: wrap; gap: 0.4rem; }
input[type="range"] {
  width: 100%;
  min-width: 0;
  margin: 0;
  accent-color: currentColor;
  cursor: pointer;
}
@media (any-pointer: coarse) {
  button,
  select,
  summary { min-height: 44px; }
  .control,
  input[type="range"] { min-height: 44px; }
}
details > summary { cursor: pointer; padding: 0.3rem 0; font-weight: 600; }
textarea {
  width: 100%;
  border: 1px solid var(--clear);
  border-radius: 6px;
  padding: 0.4rem;
  background: transparent;
  font-family: ui-monospace, monospace;
  font-size: 0.8rem;
  resize: vertical;
}
.panel { display: grid; gap: 0.5rem; }
.message { min-height: 2.8em; }
.message.warning { border-left: 4px solid #d55e00; padding-left: 0.6rem; font-weight: 600; }
.task { gap: 0.2rem; border-left: 4px solid var(--clear); padding: 0.1rem 0 0.1rem 0.7rem; }
.task .sign { margin-right: 0.4rem; }
.task .progress { min-height: 3lh; } /* so that a longer sentence moves nothing under the hand */
.task.solved { border-left: 4px double currentColor; }
figcaption,
caption,
.key { font-size: 0.85em; text-align: left; padding: 0; caption-side: top; color: inherit; }
.readings { display: grid; gap: 0.15rem; margin: 0; }
.readings div { display: flex; justify-content: space-between; gap: 0.6rem; }
.readings dd { margin: 0; font-variant-numeric: tabular-nums; white-space: nowrap; }
table { border-collapse: collapse; width: 100%; }
th,
td {
  text-align: left;
  padding: 0.15rem 0.3rem 0.15rem 0;
  font-weight: 400;
  vertical-align: top;
  border: 0;
}
th { white-space: nowrap; width: 1%; }
.swatch {
  display: inline-block;
  min-width: 1.4em;
  text-align: center;
  border-radius: 4px;
  font-weight: 700;
}
.marks { display: flex; flex-wrap: wrap; gap: 1px; min-height: 1.4em; align-items: center; }
.marks svg,
.key svg { flex: none; vertical-align: -0.2em; }
.results td { text-align: right; font-variant-numeric: tabular-nums; }
.results td[colspan] { text-align: left; }
.results thead th + th { text-align: right; }
.results thead th { width: auto; }
.results .looked { font-weight: 700; }
.results .looked th { font-weight: 700; }
.mission .control,
.two .mission .control { grid-template-columns: minmax(0, 1fr); }
.mission .control select { grid-column: 1; }
.fixed { opacity: 0.55; }
.pair { display: grid; gap: 0.8rem; grid-template-columns: minmax(0, 1fr); align-items: start; }
@container (min-width: 26rem) {
  .pair { grid-template-columns: 12rem minmax(0, 1fr); }
}
.pad { width: min(100%, 12rem); aspect-ratio: 1; touch-action: none; cursor: crosshair; user-select: none; }
.pad > div { display: grid; grid-template-columns: repeat(8, 1fr); height: 12.5%; }
.pad .square {
  border: 1px solid var(--faint);
  background: color-mix(in srgb, currentColor var(--ink), transparent);
}
.pad .square:focus-visible { outline: 2px solid #d55e00; outline-offset: -1px; }
progress { flex: 1; min-width: 6rem; align-self: center; accent-color: currentColor; }
.spoken {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}
@media (prefers-reduced-motion: reduce) {
  .glide .handle { transition: none; }
}
@media (forced-colors: active) {
  .edge,
  .swatch { forced-color-adjust: none; }
}
@media print {
  .live { display: none; }
  slot { display: block; }
}
`;
