// npm `eventsource`: every event and state as a line of JSON.
// Arguments: the URL, the cursor or an empty text, the event types as a JSON array.
import { EventSource } from "eventsource";

const [url, cursor, types] = process.argv.slice(2);
const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

const target = new URL(url);
if (cursor) target.searchParams.set("last_event_id", cursor);
const source = new EventSource(target);
source.onopen = () => say({ state: "open" });
source.onerror = (error) =>
  say({ state: source.readyState === EventSource.CLOSED ? "closed" : "lost", code: error.code ?? null });
for (const type of ["message", ...JSON.parse(types)]) {
  source.addEventListener(type, (event) => say({ event: event.type, id: event.lastEventId, data: event.data }));
}
