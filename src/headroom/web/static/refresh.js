// Brings the page up to date every few seconds without losing the place where somebody reads.
"use strict";

const EVERY_MS = 3000;

async function refresh() {
  if (document.hidden) return;
  try {
    const reply = await fetch(location.href, { cache: "no-store" });
    if (!reply.ok) throw new Error(String(reply.status));
    const fresh = new DOMParser().parseFromString(await reply.text(), "text/html").querySelector("main");
    const shown = document.querySelector("main");
    if (fresh && fresh.innerHTML !== shown.innerHTML) shown.innerHTML = fresh.innerHTML;
    document.title = document.title.replace(/^\(no answer\) /, "");
  } catch {
    // The last state stays readable; the title says that it is old.
    if (!document.title.startsWith("(no answer) ")) document.title = "(no answer) " + document.title;
  }
}

setInterval(refresh, EVERY_MS);
