// SPDX-License-Identifier: Apache-2.0
// Show all times in the time zone of the browser, with a switch to that of the site; the choice is remembered.
// A cookie has the name of the zone, for pictures that the server draws.
"use strict";

(() => {
  const KEY = "slurmscope-time-zone";
  const place = document.querySelector(".zone");
  const button = document.querySelector(".zone-switch");
  const site = place?.dataset.zone || "UTC";
  const own = (Intl.DateTimeFormat().resolvedOptions().timeZone || site).replace(/^Etc\//, "");
  let isSite = read() === "site";

  // For charts: the zone, and a time with the name of its zone.
  window.slurmscopeZone = () => (isSite ? site : own);
  window.slurmscopeTime = (seconds) => format(new Date(seconds * 1000), "full");

  button?.addEventListener("click", () => {
    isSite = !isSite;
    write(isSite ? "site" : "browser");
    show();
    document.body.dispatchEvent(new CustomEvent("slurmscope:zone"));
  });
  document.body.addEventListener("htmx:afterSwap", show);
  show();

  function show() {
    const cookie = `${KEY}=${window.slurmscopeZone()}`;
    // Pictures of this page were requested before.
    window.slurmscopeZoneIsNew = !document.cookie.split("; ").includes(cookie);
    document.cookie = `${cookie}; path=${place?.dataset.base || ""}/; max-age=31536000; SameSite=Lax`;
    for (const element of document.querySelectorAll("time[datetime]")) {
      const moment = new Date(element.getAttribute("datetime"));
      if (!Number.isNaN(moment.getTime())) element.textContent = format(moment, element.dataset.form);
    }
    if (place) place.textContent = window.slurmscopeZone();
    if (button) {
      button.hidden = own === site;
      button.textContent = `Show times in ${isSite ? own : site}`;
    }
  }

  function format(moment, form) {
    const zone = window.slurmscopeZone();
    const parts = Object.fromEntries(
      new Intl.DateTimeFormat("en-GB", {
        timeZone: zone, hourCycle: "h23", year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit",
        second: "2-digit", timeZoneName: "short",
      }).formatToParts(moment).map((part) => [part.type, part.value]),
    );
    const short = `${parts.year}-${parts.month}-${parts.day} ${parts.hour}:${parts.minute}`;
    return form === "short" ? short : `${short}:${parts.second} ${parts.timeZoneName}`;
  }

  // Browsers may forbid the storage; then the choice holds for one page.
  function read() {
    try { return localStorage.getItem(KEY); } catch { return null; }
  }

  function write(value) {
    try { localStorage.setItem(KEY, value); } catch { /* see above */ }
  }
})();
