"use strict";
// Asks every two seconds whether the page has changed, and takes the new one.
(() => {
  const live = document.getElementById("live");
  const said = document.getElementById("said");
  let mark = "";
  let seen = Date.now();
  const say = () => {
    const seconds = Math.round((Date.now() - seen) / 1000);
    said.textContent = seconds < 8 ? "live" : `no answer for ${seconds} s: is the dashboard still running?`;
    said.className = seconds < 8 ? "live" : "lost";
  };
  const ask = async () => {
    if (!document.hidden) {
      try {
        const answer = await fetch(`${location.pathname}?part`, { headers: mark ? { "If-None-Match": mark } : {} });
        if (answer.status === 200) {
          mark = answer.headers.get("ETag");
          const open = [...live.querySelectorAll("details[open]")].map((each) => each.id);
          live.innerHTML = await answer.text();
          open.forEach((id) => { const found = id && document.getElementById(id); if (found) found.open = true; });
        }
        if (answer.ok || answer.status === 304) seen = Date.now();
      } catch { /* said by the time since the last answer */ }
    } else {
      seen = Date.now();
    }
    say();
    setTimeout(ask, 2000);
  };
  ask();
})();
