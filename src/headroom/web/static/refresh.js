// Brings the page up to date every few seconds without losing the place where somebody reads: only the parts that changed
// are replaced, and a part that is scrolled sideways or has the focus keeps both.
"use strict";

const EVERY_MS = 3000;
let since = null;

function replace(shown, fresh) {
  if (shown.innerHTML === fresh.innerHTML) return;
  const wide = shown.querySelector(".wide");
  const left = wide ? wide.scrollLeft : 0;
  const focused = wide !== null && document.activeElement === wide;
  shown.innerHTML = fresh.innerHTML;
  const again = shown.querySelector(".wide");
  if (!again) return;
  again.scrollLeft = left;
  if (focused) again.focus({ preventScroll: true });
}

function update(fresh) {
  const shown = document.querySelector("main");
  const ids = (main) => Array.from(main.children, (part) => part.id).join();
  if (ids(shown) !== ids(fresh)) {
    replace(shown, fresh);
    return;
  }
  Array.from(shown.children).forEach((part, number) => replace(part, fresh.children[number]));
}

async function refresh() {
  if (document.hidden) return;
  const stale = document.getElementById("stale");
  try {
    const reply = await fetch(location.href, { cache: "no-store" });
    if (!reply.ok) throw new Error(String(reply.status));
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    update(page.querySelector("main"));
    since = null;
    stale.hidden = true;
  } catch {
    // The last state stays readable, and says that it is old.
    since = since || new Date();
    stale.textContent = `No answer from the operator since ${since.toLocaleTimeString()}: what follows is old.`;
    stale.hidden = false;
  }
}

setInterval(refresh, EVERY_MS);
