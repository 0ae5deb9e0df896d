// One session's stream with its own reconnection.
//
// A native EventSource shows only events whose type it was told beforehand and gives up for good on any
// status but 200. An inspector must show every type and outlive a restart, so this reads the stream itself:
// one request at a time, resumed from the last id, with a growing, jittered pause between failures.

const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 30000;
const SILENCE = 45000; // three heartbeats without a byte: the connection is dead
const FINAL = [400, 401, 403, 404];

/** Cut decoded text into SSE blocks, whatever the chunks. Calls `emit({id, type, data, retry})` per block. */
export class Blocks {
  constructor(emit) {
    this.emit = emit;
    this.text = "";
    this.reset();
  }

  reset() {
    this.block = { id: null, type: "message", data: null, retry: null };
  }

  feed(text) {
    this.text += text;
    let end;
    while ((end = this.text.search(/\r\n|\n|\r/)) >= 0) {
      const wide = this.text.startsWith("\r\n", end);
      if (this.text[end] === "\r" && end === this.text.length - 1) return; // an LF may follow in the next chunk
      this.line(this.text.slice(0, end));
      this.text = this.text.slice(end + (wide ? 2 : 1));
    }
  }

  line(line) {
    if (line === "") {
      if (this.block.data !== null || this.block.id !== null || this.block.retry !== null) this.emit(this.block);
      return this.reset();
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.block.type = value;
    else if (name === "data") this.block.data = this.block.data === null ? value : `${this.block.data}\n${value}`;
    else if (name === "id" && !value.includes("\0")) this.block.id = value;
    else if (name === "retry" && /^[0-9]+$/.test(value)) this.block.retry = Number(value);
  }
}

/**
 * Follow a session until `stop()`. Calls `onFrame({id, type, data})` for each frame and
 * `onState(name, detail)`; names: connecting, live, waiting, paused, ended, failed, stopped.
 */
export class Feed {
  constructor(session, onFrame, onState) {
    this.url = `/session/${encodeURIComponent(session)}/events`;
    this.onFrame = onFrame;
    this.onState = onState;
    this.cursor = null;
    this.retry = FIRST_PAUSE;
    this.failures = 0;
    this.done = false;
    this.request = null;
    this.timer = null;
  }

  get active() {
    return this.request !== null || this.timer !== null;
  }

  start() {
    if (!this.done && !this.active) this.connect();
  }

  /** Release the connection and keep the cursor; `start()` resumes. */
  pause(state = "paused") {
    clearTimeout(this.timer);
    this.timer = null;
    const request = this.request;
    this.request = null;
    if (request !== null) request.abort();
    if (!this.done) this.onState(state, "");
  }

  stop() {
    this.pause("stopped");
    this.done = true;
  }

  async connect() {
    const request = new AbortController();
    this.request = request;
    this.onState("connecting", "");
    let detail = "";
    try {
      const response = await fetch(this.cursor === null ? `${this.url}?from=start` : this.url, {
        headers: this.cursor === null ? {} : { "Last-Event-ID": this.cursor },
        cache: "no-store",
        signal: request.signal,
      });
      if (response.status === 204) return this.end(request, "ended", "the session is closed");
      if (FINAL.includes(response.status)) return this.end(request, "failed", await reason(response));
      if (response.status !== 200) throw new Error(await reason(response));
      await this.read(response, request);
      detail = "the stream ended";
    } catch (error) {
      if (request !== this.request) return;
      this.failures += 1;
      detail = error.message;
    }
    if (request === this.request) this.again(detail);
  }

  async read(response, request) {
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    const blocks = new Blocks((block) => request === this.request && this.take(block));
    let watchdog;
    const watch = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => reader.cancel("silence"), SILENCE);
    };
    this.onState("live", "");
    try {
      for (;;) {
        watch();
        const { done, value } = await reader.read();
        if (done) return;
        blocks.feed(decoder.decode(value, { stream: true }));
      }
    } finally {
      clearTimeout(watchdog);
    }
  }

  take(block) {
    if (block.retry !== null) this.retry = Math.min(block.retry, LONGEST_PAUSE);
    if (block.id) this.cursor = block.id;
    if (block.data === null) return;
    if (block.type !== "stream_error") this.failures = 0;
    this.onFrame(block);
  }

  end(request, state, detail) {
    if (request !== this.request) return;
    this.request = null;
    this.done = true;
    this.onState(state, detail);
  }

  again(detail) {
    this.request = null;
    const grown = Math.min(this.retry * 2 ** Math.max(0, this.failures - 1), LONGEST_PAUSE);
    const pause = Math.round(grown * (1 + Math.random() / 4));
    this.onState("waiting", `${detail}; again in ${(pause / 1000).toFixed(1)} s`);
    this.timer = setTimeout(() => {
      this.timer = null;
      this.start();
    }, pause);
  }
}

async function reason(response) {
  try {
    const problem = await response.json();
    return problem.detail || problem.title || `status ${response.status}`;
  } catch {
    return `status ${response.status}`;
  }
}
