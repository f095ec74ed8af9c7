// Light, dark, or as the system says. Loaded before the page is drawn, so that nothing flashes; the choice stays in this browser.
"use strict";

(() => {
  const KEY = "headroom-theme";
  const ORDER = ["auto", "light", "dark"];
  const WORDS = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
  let chosen = "auto";
  try {
    chosen = localStorage.getItem(KEY) || "auto";
  } catch {
    // A browser may forbid storage; the choice then lasts as long as the page.
  }
  if (!ORDER.includes(chosen)) chosen = "auto";

  function apply() {
    document.documentElement.dataset.theme = chosen;
    const button = document.getElementById("theme");
    if (button) {
      button.dataset.theme = chosen;
      button.setAttribute("aria-label", WORDS[chosen]);
      button.title = WORDS[chosen];
    }
    document.dispatchEvent(new Event("themechange"));
  }

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.getElementById("theme").addEventListener("click", () => {
      chosen = ORDER[(ORDER.indexOf(chosen) + 1) % ORDER.length];
      try {
        localStorage.setItem(KEY, chosen);
      } catch {
        // As above.
      }
      apply();
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
