// The page: sessions on the left, the followed one on the right. Everything that came from a publisher is
// put in as text, never as markup.

import { Feed } from "/page/feed.js";

const ROWS = 500; // newest rows that stay in the page
const PAGE = 100;
const REFRESH = 5000;
const TYPING = 200; // a list is asked for once nobody has typed for so long
const CONTROL = new Set([
  "state_resync_required", "replay_complete", "slow_client_warning", "client_evicted", "stream_error",
  "log_degraded", "log_restored", "server_draining", "session_snapshot",
]);

const at = (id) => document.getElementById(id);
let feed = null;
let held = false; // disconnected by hand: only the button connects again
let current = null;
let shown = PAGE;
let count = 0;
let typing = 0;

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// The instance and its sessions

async function refresh() {
  if (document.hidden) return;
  try {
    const ready = await (await fetch("/readyz", { cache: "no-store" })).json();
    mark(at("instance"), ready.status, ready.status === "ok" ? "ready" : ready.status);
  } catch {
    mark(at("instance"), "unreachable", "unreachable");
    return;
  }
  await list();
}

async function list() {
  const prefix = at("prefix").value.trim();
  const answer = await fetch(`/sessions?limit=${shown}&prefix=${encodeURIComponent(prefix)}`, { cache: "no-store" });
  const body = await answer.json();
  if (prefix !== at("prefix").value.trim()) return; // typed on meanwhile
  const refused = answer.status === 400;
  if (!answer.ok && !refused) return;
  const sessions = body.sessions ?? [];
  at("sessions").replaceChildren(...sessions.map(sessionRow));
  at("no-sessions").hidden = sessions.length > 0 || prefix !== "";
  at("no-match").hidden = sessions.length > 0 || prefix === "";
  at("no-match").textContent = refused ? body.detail : `No session begins with ${prefix}.`;
  at("more").hidden = body.next === undefined;
}

function sessionRow(session) {
  const row = element("li");
  const button = element("button", "session");
  button.type = "button";
  button.setAttribute("aria-current", String(session.sessionId === current));
  button.append(element("span", "name", session.sessionId));
  if (session.closed) button.append(element("span", "badge", "closed"));
  button.append(element("span", "meta", `${session.events} events, last id ${session.lastEventId}`));
  button.addEventListener("click", () => follow(session.sessionId));
  row.append(button);
  return row;
}

function mark(pill, state, text) {
  pill.dataset.state = state;
  pill.textContent = text;
}

// The followed session

function follow(session) {
  if (feed !== null) feed.stop();
  current = session;
  held = false;
  count = 0;
  location.hash = encodeURIComponent(session);
  document.title = `${session} · Ringmere`;
  at("welcome").hidden = true;
  at("follow").hidden = false;
  at("title").textContent = session;
  at("events").replaceChildren();
  at("last-id").textContent = "–";
  at("count").textContent = "0";
  feed = new Feed(session, onFrame, onState);
  connect();
  refresh();
}

function connect() {
  at("toggle").textContent = "Disconnect";
  if (document.hidden) return onState("paused", "");
  feed.start();
}

function onState(state, detail) {
  mark(at("state"), state, detail ? `${state}: ${detail}` : state);
  const over = ["ended", "failed", "stopped"].includes(state);
  at("toggle").hidden = state === "ended" || state === "failed";
  if (over) at("toggle").textContent = "Connect";
}

function onFrame(frame) {
  const envelope = parse(frame.data);
  const control = CONTROL.has(frame.type) && frame.id === null;
  if (!control) {
    count += 1;
    at("count").textContent = String(count);
    at("last-id").textContent = frame.id ?? "–";
  }
  const list = at("events");
  list.append(eventRow(frame, envelope, control));
  while (list.childElementCount > ROWS) list.firstElementChild.remove();
  if (at("stick").checked) list.scrollTop = list.scrollHeight;
}

function eventRow(frame, envelope, control) {
  const row = element("li", control ? "frame control" : "frame");
  row.dataset.type = frame.type;
  row.append(element("span", "id", control ? "control" : frame.id ?? "–"));
  row.append(element("span", "type", frame.type));
  row.append(element("code", "data", envelope === null ? frame.data : JSON.stringify(envelope.data)));
  row.append(element("time", "time", clock(envelope?._meta?.serverTimestamp)));
  return row;
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function clock(ms) {
  return Number.isFinite(ms) ? new Date(ms).toLocaleTimeString([], { hour12: false }) : "";
}

async function publish(event) {
  event.preventDefault();
  const outcome = at("outcome");
  const data = parse(at("data").value);
  if (data === null && at("data").value.trim() !== "null") {
    return mark(outcome, "failed", "data is not JSON");
  }
  try {
    const answer = await fetch(`/session/${encodeURIComponent(current)}/events`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ type: at("type").value, data }),
    });
    const body = await answer.json();
    mark(outcome, answer.ok ? "live" : "failed", answer.ok ? `stored as ${body.id}` : body.detail || body.title);
    if (answer.ok && feed.done) follow(current);
  } catch (error) {
    mark(outcome, "failed", error.message);
  }
}

function inHash() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return "";
  }
}

// Wiring

at("open").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = at("open-id").value.trim();
  if (id) follow(id);
});
at("fresh").addEventListener("click", async () => {
  const answer = await fetch("/session", { method: "POST" });
  if (answer.ok) follow((await answer.json()).sessionId);
});
at("filter").addEventListener("submit", (event) => event.preventDefault());
at("prefix").addEventListener("input", () => {
  shown = PAGE;
  clearTimeout(typing);
  typing = setTimeout(list, TYPING);
});
at("more").addEventListener("click", () => {
  shown = Math.min(shown + PAGE, 1000);
  refresh();
});
at("toggle").addEventListener("click", () => {
  held = feed.active;
  if (held) feed.pause("stopped");
  else connect();
});
at("publish").addEventListener("submit", publish);

// A browser opens six connections to a host over HTTP/1.1: a tab nobody sees must not hold one.
document.addEventListener("visibilitychange", () => {
  if (feed === null || held) return;
  if (document.hidden) feed.pause();
  else {
    feed.start();
    refresh();
  }
});
window.addEventListener("pagehide", () => feed?.pause());
window.addEventListener("pageshow", (event) => event.persisted && feed && !held && feed.start());
window.addEventListener("hashchange", () => {
  const named = inHash();
  if (named && named !== current) follow(named);
});

setInterval(refresh, REFRESH);
if (inHash()) follow(inHash());
else refresh();
