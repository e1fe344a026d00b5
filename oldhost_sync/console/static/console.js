// The console's script: shows times in UTC or local time, keeps durations current, copies keys. Pages work without it.
"use strict";

(() => {
  const units = [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]];

  function span(ms) {
    if (ms < 10000) return `${(Math.max(ms, 0) / 1000).toFixed(1)} s`;
    const seconds = Math.round(ms / 1000);
    for (const [size, unit, smaller, name] of units) {
      if (seconds >= size) {
        const rest = Math.floor((seconds % size) / smaller);
        return `${Math.floor(seconds / size)} ${unit}${rest ? ` ${rest} ${name}` : ""}`;
      }
    }
    return `${seconds} s`;
  }

  // ------------------------------------------------------------------------------------------------------------- times

  const zone = document.getElementById("zone");
  let local = localStorage.getItem("zone") === "local";

  function two(number) {
    return String(number).padStart(2, "0");
  }

  function clock(moment) {
    const now = new Date();
    const parts = local
      ? [moment.getFullYear(), moment.getMonth(), moment.getDate(), moment.getHours(), moment.getMinutes(), moment.getSeconds()]
      : [moment.getUTCFullYear(), moment.getUTCMonth(), moment.getUTCDate(), moment.getUTCHours(), moment.getUTCMinutes(), moment.getUTCSeconds()];
    const today = local ? moment.toDateString() === now.toDateString() : moment.toISOString().slice(0, 10) === now.toISOString().slice(0, 10);
    const time = parts.slice(3).map(two).join(":");
    return today ? time : `${parts[0]}-${two(parts[1] + 1)}-${two(parts[2])} ${time}`;
  }

  function showTimes(root) {
    for (const each of root.querySelectorAll("time[datetime]")) each.textContent = clock(new Date(each.dateTime));
    for (const each of document.querySelectorAll("[data-zone-name]")) each.textContent = local ? "local time" : "UTC";
    if (zone) zone.textContent = local ? "Local time" : "UTC";
  }

  // How far the server's clock is ahead of this machine's: durations are shown by the server's clock.
  let ahead = 0;
  function count(root) {
    const now = Date.now() + ahead;
    for (const each of root.querySelectorAll("[data-since]")) each.textContent = span(now - Date.parse(each.dataset.since));
    for (const each of root.querySelectorAll("[data-until]")) each.textContent = span(Date.parse(each.dataset.until) - now);
  }

  if (zone) {
    zone.hidden = false;
    zone.title = "Show times in UTC or in local time";
    zone.addEventListener("click", () => {
      local = !local;
      localStorage.setItem("zone", local ? "local" : "utc");
      showTimes(document);
    });
  }

  // ------------------------------------------------------------------------------------------------------------ copying

  function showCopying(root) {
    if (!navigator.clipboard) return;
    for (const each of root.querySelectorAll("button.copy")) each.hidden = false;
  }

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button.copy");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });

  // Only one form of an act is open at a time; Escape closes it.
  document.addEventListener("toggle", (event) => {
    if (!event.target.matches("details.act[open]")) return;
    for (const each of document.querySelectorAll("details.act[open]")) if (each !== event.target) each.open = false;
    const field = event.target.querySelector("input:not([type=hidden])");
    if (field) field.focus();
  }, true);
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && document.querySelector("details.act[open]");
    if (!open) return;
    open.open = false;
    open.querySelector("summary").focus();
  });

  // On a narrow screen the navigation scrolls: keep the current page's entry in view.
  const here = document.querySelector("nav [aria-current]");
  if (here) {
    const list = here.closest("ul");
    const [inner, outer] = [here.getBoundingClientRect(), list.getBoundingClientRect()];
    list.scrollLeft += inner.left - outer.left - (outer.width - inner.width) / 2;
  }

  function refine(root) {
    showTimes(root);
    count(root);
    showCopying(root);
  }

  // --------------------------------------------------------------------------------------------------------------- live

  const live = document.getElementById("live");
  const address = document.body.dataset.stream;
  const PATIENCE = 8000;
  let stream = null;
  let lastAt = null;
  let lastSeen = Date.now();

  function say(state) {
    if (live.dataset.live === state) return;
    live.hidden = false;
    live.dataset.live = state;
    if (state === "stale") {
      document.body.dataset.stale = "";
      live.textContent = lastAt ? `Not live since ${clock(lastAt)}, trying again` : "Not live, trying again";
    } else {
      delete document.body.dataset.stale;
      live.textContent = "Live";
    }
  }

  function isSelectedIn(element) {
    const selection = getSelection();
    return !selection.isCollapsed && element.contains(selection.anchorNode);
  }

  function replace(element, html) {
    const scrolled = [...element.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
    const focused = [...element.querySelectorAll("[tabindex], a, button")].indexOf(document.activeElement);
    element.innerHTML = html;
    refine(element);
    [...element.querySelectorAll(".scroll")].forEach((each, index) => { each.scrollLeft = scrolled[index] || 0; });
    if (focused >= 0) element.querySelectorAll("[tabindex], a, button")[focused]?.focus({ preventScroll: true });
  }

  function receive(event) {
    const { at, parts } = JSON.parse(event.data);
    lastAt = new Date(at);
    lastSeen = Date.now();
    ahead = lastAt.getTime() - lastSeen;
    for (const [name, html] of Object.entries(parts)) {
      const element = document.getElementById(`part-${name}`);
      if (element && !isSelectedIn(element)) replace(element, html);
    }
    say("on");
  }

  function open() {
    if (stream) stream.close();
    stream = new EventSource(address);
    stream.addEventListener("message", receive);
    stream.addEventListener("error", () => say("stale"));
  }

  if (address && live) {
    open();
    setInterval(() => {
      if (document.hidden) return;
      if (Date.now() - lastSeen > PATIENCE) say("stale");
      // A browser does not reconnect by itself after a refusal.
      if (!stream || stream.readyState === EventSource.CLOSED) open();
    }, 5000);
    // A hidden window needs no stream.
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) {
        stream.close();
        stream = null;
      } else {
        lastSeen = Date.now();
        open();
      }
    });
  }

  refine(document);
  setInterval(() => count(document), 1000);
})();
