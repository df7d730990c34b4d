// The switches of theme and time zone, the rows that arrive while a topic is followed, and dialogs that ask for a name.
"use strict";

const root = document.documentElement;

function showTimes(scope) {
  const zone = localStorage.getItem("ortoo-zone") === "local" ? "local" : "utc";
  for (const element of scope.querySelectorAll("time[datetime]")) {
    const iso = element.getAttribute("datetime");
    if (zone === "utc") {
      element.textContent = `${iso.slice(0, 10)} ${iso.slice(11, 23)} UTC`;
    } else {
      const moment = new Date(iso);
      const two = (number, length = 2) => String(number).padStart(length, "0");
      const minutes = -moment.getTimezoneOffset();
      const offset = `${minutes < 0 ? "-" : "+"}${two(Math.trunc(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
      element.textContent =
        `${moment.getFullYear()}-${two(moment.getMonth() + 1)}-${two(moment.getDate())} ` +
        `${two(moment.getHours())}:${two(moment.getMinutes())}:${two(moment.getSeconds())}.` +
        `${two(moment.getMilliseconds(), 3)} ${offset}`;
    }
  }
}

function zoneSwitch() {
  const button = document.getElementById("zone");
  const show = () => {
    const isLocal = localStorage.getItem("ortoo-zone") === "local";
    button.textContent = isLocal ? "Times: local" : "Times: UTC";
  };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    localStorage.setItem("ortoo-zone", localStorage.getItem("ortoo-zone") === "local" ? "utc" : "local");
    show();
    showTimes(document);
  });
}

function themeSwitch() {
  const button = document.getElementById("theme");
  const order = ["auto", "light", "dark"];
  const show = () => {
    button.textContent = `Theme: ${root.dataset.theme || "auto"}`;
  };
  button.hidden = false;
  show();
  button.addEventListener("click", () => {
    const next = order[(order.indexOf(root.dataset.theme || "auto") + 1) % order.length];
    localStorage.setItem("ortoo-theme", next);
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    show();
  });
}

// A table that follows a topic: the server sends rows as HTML that it has escaped.
function follow(table) {
  const body = table.tBodies[0];
  const state = document.getElementById(table.dataset.state);
  const pause = document.getElementById(table.dataset.pause);
  const most = Number(table.dataset.most);
  let source = null;
  const start = () => {
    source = new EventSource(table.dataset.follow);
    source.addEventListener("open", () => (state.textContent = "live"));
    source.addEventListener("error", () => (state.textContent = "connection lost, connecting again"));
    source.addEventListener("refused", (event) => {
      state.textContent = event.data;
      source.close();
    });
    source.addEventListener("first", (event) => put(event.data, true));
    source.addEventListener("rows", (event) => put(event.data, false));
    source.addEventListener("omitted", (event) => (state.textContent = `live; ${event.data} messages not shown`));
  };
  const put = (html, isFirst) => {
    const rows = document.createElement("template");
    rows.innerHTML = html;
    showTimes(rows.content);
    if (isFirst) body.replaceChildren(rows.content);
    else body.prepend(rows.content);
    while (body.rows.length > most) body.deleteRow(-1);
  };
  pause.hidden = false;
  pause.addEventListener("click", () => {
    if (source) {
      source.close();
      source = null;
      state.textContent = "paused";
      pause.textContent = "Continue";
    } else {
      start();
      pause.textContent = "Pause";
    }
  });
  start();
}

// A dangerous action: its button works when the name has been typed.
function confirmName(form) {
  const field = form.querySelector("[data-confirms]");
  const button = form.querySelector("button");
  const check = () => (button.disabled = field.value !== field.dataset.confirms);
  field.addEventListener("input", check);
  check();
}

document.addEventListener("htmx:afterSwap", (event) => showTimes(event.detail.target));
showTimes(document);
zoneSwitch();
themeSwitch();
document.querySelectorAll("table[data-follow]").forEach(follow);
document.querySelectorAll("form[data-confirm]").forEach(confirmName);
