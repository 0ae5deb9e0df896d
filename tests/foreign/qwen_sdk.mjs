// npm `@qwen-code/sdk`: every event and state as a line of JSON, resumed as its callers do.
// Arguments: the URL of a session's events, the cursor or an empty text, the way (`client` or `session`), and
// for the way `session` optionally `maxQueued` and how many events to take before a line on stdin lets it go on.
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import {
  DaemonClient,
  DaemonHttpError,
  DaemonSessionClient,
  createDaemonSessionViewState,
  reduceDaemonSessionEvent,
} from "@qwen-code/sdk/daemon";

const [url, cursor, way, maxQueued, stopAfter] = process.argv.slice(2);
const [, base, sessionId] = url.match(/^(.*)\/session\/([^/]+)\/events$/);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");
const client = new DaemonClient({ baseUrl: base });
const session = new DaemonSessionClient({
  client,
  session: { sessionId: decodeURIComponent(sessionId), workspaceCwd: "/", attached: false },
  lastEventId: cursor ? Number(cursor) : undefined,
});
const ways = { client: subscribe, session: () => session.events(maxQueued ? { maxQueued: Number(maxQueued) } : {}) };

let last = cursor ? Number(cursor) : undefined;
let epoch;

function subscribe() {
  return client.subscribeEvents(session.sessionId, {
    lastEventId: last,
    epoch,
    onEpoch: (token) => (epoch = token),
  });
}

const stdin = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
let view = createDaemonSessionViewState();
let taken = 0;

async function read(events) {
  for await (const event of events) {
    view = reduceDaemonSessionEvent(view, event);
    last = event.id ?? last;
    const { awaitingResync, alive, unrecognizedKnownEventCount: unrecognized } = view;
    const shown = { awaitingResync, alive, unrecognized, terminal: view.terminalEvent?.type ?? null };
    say({ event: event.type, id: String(last ?? ""), data: JSON.stringify(event), view: shown });
    if (++taken === Number(stopAfter)) await stdin.next();
  }
}

for (;;) {
  try {
    await read(ways[way]());
    say({ state: "lost", code: null, last: session.lastEventId ?? null, epoch: session.eventEpoch ?? epoch });
  } catch (error) {
    if (error instanceof DaemonHttpError) {
      say({ state: "closed", code: error.status });
      process.exit(0);
    }
    say({ state: "lost", code: null });
  }
  await pause(100);
}
