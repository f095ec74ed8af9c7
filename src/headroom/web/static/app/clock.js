// What time it is on the other side, and all <time> elements that say how far away something is.

import * as format from "./format.js";

let base = Date.now();
let heard = performance.now();
let speed = 1;
let stands = true;

/** The model was made at this instant; in a demo its time runs faster. */
export function set(at, rate = 1) {
  base = Date.parse(at);
  heard = performance.now();
  speed = rate;
  stands = false;
  show();
}

/** Without news the time stands still: what is shown is how it was then. */
export function stop() {
  base = now();
  stands = true;
}

export function now() {
  return stands ? base : base + (performance.now() - heard) * speed;
}

/** Writes what each <time> below a node should say now. */
export function show(below = document) {
  const here = now();
  for (const node of below.querySelectorAll("time[data-form]")) {
    const moment = Date.parse(node.dateTime);
    if (Number.isNaN(moment)) continue;
    const form = node.dataset.form;
    const wanted = format[form](moment, here);
    if (node.textContent !== wanted) node.textContent = wanted;
  }
}

// The exact time is told on hovering, and made only then: a page may have a thousand of them.
document.addEventListener("pointerover", ({ target }) => {
  if (target.matches?.("time[data-form]")) target.title = format.exactly(Date.parse(target.dateTime));
});

setInterval(() => {
  if (!stands && !document.hidden) show();
}, 1000);
