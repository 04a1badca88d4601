// What the pages gain by a script: they follow what happens, show times as the reader's, copy what is to be copied, and keep
// a theme. Without it everything else works.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // The theme is set before anything is drawn.
  const themes = ["auto", "light", "dark"];
  const stored = (name) => { try { return localStorage.getItem(name); } catch { return null; } };
  const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* it holds for this page */ } };
  let theme = themes.includes(stored("theme")) ? stored("theme") : "auto";
  const setTheme = () => { if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme; };
  setTheme();

  const quick = 500;      // ms at least between two fetches of a page
  const slow = 5000;      // the same while more than busy changes come in a second
  const busy = 20;        // changes a second
  const silence = 12000;  // ms without a word after which a stream counts as held back or broken
  const polled = 5000;    // ms between fetches without a stream

  document.addEventListener("DOMContentLoaded", () => {
    const page = document.getElementById("page");
    themeButton();
    document.addEventListener("keydown", keys);
    document.addEventListener("click", copy);
    dress();
    if (page && page.dataset.live) follow(page);
  });

  function themeButton() {
    const button = document.getElementById("theme");
    if (!button) return;
    const show = () => { button.textContent = "Theme: " + theme; };
    show();
    button.addEventListener("click", () => {
      theme = themes[(themes.indexOf(theme) + 1) % themes.length];
      store("theme", theme);
      setTheme();
      show();
    });
  }

  function keys(event) {
    const typing = event.target.closest && event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      const search = document.getElementById("search");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    }
  }

  async function copy(event) {
    const button = event.target.closest && event.target.closest("button.copy");
    if (!button) return;
    const from = document.getElementById(button.dataset.copy);
    if (!from) return;
    let copied = true;
    try { await navigator.clipboard.writeText(from.textContent); } catch { copied = false; }
    if (!copied) { // without https there is no clipboard: the reader copies what is selected
      const range = document.createRange();
      range.selectNodeContents(from);
      const selection = getSelection();
      selection.removeAllRanges();
      selection.addRange(range);
    }
    button.textContent = copied ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  // dress shows times as the reader's, and begins to count leases.
  const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  const day = new Intl.DateTimeFormat("sv-SE", { year: "numeric", month: "2-digit", day: "2-digit" });
  function dress() {
    const today = day.format(new Date());
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      time.title = time.dateTime.replace("T", " ").replace("Z", " UTC");
      const on = day.format(at);
      const words = on === today ? clock.format(at) : on + " " + clock.format(at);
      if (time.textContent !== words) time.textContent = words;
    }
    for (const lease of document.querySelectorAll(".lease[data-ends]")) lease.since = performance.now();
    for (const head of document.querySelectorAll("thead th")) {
      if (head.textContent.endsWith(" (UTC)")) head.textContent = head.textContent.slice(0, -6);
    }
    for (const cell of document.querySelectorAll('[data-label$=" (UTC)"]')) cell.dataset.label = cell.dataset.label.slice(0, -6);
  }

  setInterval(() => {
    if (document.hidden) return;
    for (const lease of document.querySelectorAll(".lease[data-ends]")) {
      const ends = Number(lease.dataset.ends) - (performance.now() - lease.since);
      const bar = lease.querySelector("rect");
      if (bar) bar.setAttribute("width", String(100 * Math.max(0, Math.min(1, ends / Number(lease.dataset.length)))));
      const words = lease.lastElementChild;
      if (words) words.textContent = ends < 0 ? "ended " + span(-ends) + " ago" : span(ends) + " left";
    }
  }, 1000);

  function span(ms) {
    const s = Math.floor(ms / 1000);
    if (s < 60) return s + "s";
    if (s < 3600) return Math.floor(s / 60) + "m" + (s % 60 ? (s % 60) + "s" : "");
    return Math.floor(s / 3600) + "h" + Math.floor(s % 3600 / 60) + "m";
  }

  // follow fetches the page again when something has changed, and morphs what is shown into it: focus, selection and what is
  // being written stay.
  function follow(page) {
    const badge = document.getElementById("live");
    let source = null, heard = performance.now(), fetched = 0, read = performance.now(), due = null, under = null, again = false, rate = 0, ended = false, failing = null, fallback = false;

    const say = (words, style) => {
      if (badge.textContent !== words) badge.textContent = words;
      badge.className = "live " + style;
    };
    const writing = () => {
      const on = document.activeElement;
      return on && page.contains(on) && on.matches("input, textarea, select");
    };

    function connect() {
      if (source || ended || document.hidden) return;
      if (!window.EventSource) { fallback = true; return; }
      source = new EventSource(page.dataset.live);
      heard = performance.now();
      source.addEventListener("change", (event) => { hear(); count(Number(event.data) || 1); want(); });
      source.addEventListener("tick", () => { hear(); want(); });
      source.onerror = () => {
        if (source && source.readyState === EventSource.CLOSED) { drop(); ask(); }
      };
    }
    function drop() { if (source) { source.close(); source = null; } }
    function hear() { heard = performance.now(); fallback = false; }

    // ask finds out why a stream was refused, which an EventSource does not say. Unless the reader has no right to it, the page
    // looks by itself for a while.
    async function ask() {
      try {
        const answer = await fetch(page.dataset.live + "&wait=0s", { cache: "no-store" });
        const html = await answer.text();
        if (denied(answer.status)) { stop(answer.status, html); return; }
      } catch { /* the fetch of the page says that the node does not answer */ }
      ended = false;
      fallback = true;
      heard = performance.now();
      want();
    }
    const denied = (status) => status === 401 || status === 403;

    // count keeps the changes a second, over some seconds.
    let counted = performance.now();
    function count(changes) {
      const now = performance.now();
      const passed = Math.max((now - counted) / 1000, 0.05);
      counted = now;
      const part = Math.min(passed / 3, 1);
      rate = rate * (1 - part) + (changes / passed) * part;
    }

    function want() {
      if (ended || document.hidden || due) return;
      if (performance.now() - counted > 5000) rate = 0;
      const gap = rate > busy ? slow : quick;
      const wait = Math.max(0, fetched + gap - performance.now());
      due = setTimeout(() => { due = null; refresh(); }, wait);
    }

    async function refresh() {
      if (ended) return;
      if (under) { again = true; return; } // what is on its way may be of before the change
      fetched = performance.now();
      under = new AbortController();
      const limit = setTimeout(() => under && under.abort(), 10000);
      try {
        const answer = await fetch(location.pathname + location.search, { headers: { "X-Rollcall-Fragment": "1" }, signal: under.signal, cache: "no-store" });
        const html = await answer.text();
        if (denied(answer.status)) { stop(answer.status, html); return; }
        if (!answer.ok) { refused(answer); return; }
        failing = null;
        read = fetched;
        morph(html);
        status();
      } catch (error) {
        failing = failing || new Date();
        lost();
      } finally {
        clearTimeout(limit);
        under = null;
        if (again) { again = false; want(); }
      }
    }

    function morph(html) {
      const next = new DOMParser().parseFromString(html, "text/html").getElementById("page");
      if (!next || !window.Idiomorph) return;
      const kept = writing() || page.querySelector("form[method=post]");
      for (const part of [...next.children]) {
        const old = document.getElementById(part.id);
        if (!old || (part.id === "main" && kept)) continue; // a form is never made again under its reader's hands
        Idiomorph.morph(old, part, { morphStyle: "outerHTML", ignoreActiveValue: true, restoreFocus: true });
      }
      if (!kept) document.title = next.dataset.title;
      page.dataset.others = next.dataset.others;
      dress();
    }

    function status() {
      if (rate > busy) say("live, every 5 s: " + Math.round(rate) + " changes/s", "on");
      else if (fallback) say("looking every 5 s", "");
      else say("live", "on");
    }

    // lost says that the node does not answer, and leads to the others; the next page that comes replaces the line.
    function lost() {
      say("No answer since " + clock.format(failing) + ". Trying again.", "off");
      setTimeout(want, 2000);
      const others = Object.entries(JSON.parse(page.dataset.others));
      line("This node does not answer.", "What you see is as of " + clock.format(new Date(performance.timeOrigin + read)) + "." + (others.length ? " Other nodes:" : ""), others);
    }

    // refused says what the node answers instead of the page, and asks again when the node wants that.
    function refused(answer) {
      say("The node answers " + answer.status + " " + answer.statusText + ". Trying again.", "off");
      setTimeout(want, Math.max(2000, 1000 * (Number(answer.headers.get("Retry-After")) || 0)));
    }

    function line(bold, words, links, target) {
      const strong = document.createElement("strong"), said = document.createElement("p"), leads = document.createElement("p");
      strong.textContent = bold;
      said.append(strong, " " + words);
      leads.className = "links";
      for (const [name, path] of links) {
        const to = document.createElement("a");
        to.href = path;
        to.textContent = name;
        if (target) to.target = target;
        leads.append(to);
      }
      const truth = document.getElementById("truth");
      truth.className = "truth bad";
      truth.replaceChildren(said, ...(links.length ? [leads] : []));
    }

    // stop says in the line of state that the page follows no more, and why. A form that is open stays as it is: its reader logs
    // in beside it.
    function stop(status, html) {
      ended = true;
      drop();
      say("not live", "off");
      const form = writing() || page.querySelector("form[method=post]");
      const why = status === 403 && new DOMParser().parseFromString(html, "text/html").querySelector("main p");
      const login = "/ui/login?next=" + encodeURIComponent(location.pathname + location.search);
      line(status === 401 ? "Your login ended." : "You may not read this any more.",
        (why ? why.textContent + " " : "") + "What you see is as of " + clock.format(new Date(performance.timeOrigin + read)) + (form ? ", and what you have written stays." : "."),
        [[status === 401 ? "Log in" : "Log in as somebody else", login]], form ? "_blank" : "");
    }

    setInterval(() => {
      if (ended || document.hidden) return;
      if (source && performance.now() - heard > silence) { drop(); fallback = true; }
      if (!source) {
        if (fallback || !window.EventSource) { if (performance.now() - fetched > polled) want(); }
        if (performance.now() - heard > silence) { heard = performance.now(); connect(); } else if (!fallback) connect();
      }
    }, 1000);
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) { drop(); return; }
      if (ended) { ask(); return; } // a login may have come meanwhile, in another tab
      connect();
      want();
    });
    addEventListener("pagehide", drop);
    connect();
    status();
  }
})();
