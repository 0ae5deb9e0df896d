/* Load reader: many SSE connections in one thread, every event checked by the counter in its data.
 *
 * Usage: reader --port P --readers N --sessions K --prefix S [--path F] [--cursor V] [--events E]
 *               [--limit SECONDS] [--progress FILE] [--type T]
 *
 * Reader i opens the stream of session "<prefix><i mod K>". The publisher's events hold "n" (1, 2, 3… in
 * each session) and "ts" (CLOCK_MONOTONIC, ns). Lines of JSON go to stdout: one when every connection has
 * its response headers, one at the end. Commands on stdin: "expect E SECONDS" ends the run when every
 * connection holds E events or after that time; "quit" ends it now. With --progress the least counter over
 * all connections is kept in the first 8 bytes of FILE, which lets a publisher stay a window ahead.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, HEAD_BYTES = 16 * 1024, MAX_OPENING = 64, SAMPLES = 4, SAMPLE_BYTES = 300, MOST = 4096 };
/* Clients are on other machines: a reader that sleeps until it is woken would cost the gateway a context switch
 * for nearly every write. So it looks at its sockets at intervals, which add at most this much to a delay. */
enum { LOOK_NS = 200000 };
enum state { IDLE, CONNECTING, HEAD, BODY, CLOSED };
enum framing { SIZE_LINE, CHUNK, CHUNK_END, BODY_END, UNFRAMED };
enum kind {
  MESSAGE, COMPLETE, RESYNC, WARNED, EVICTED, STREAM_ERROR, DEGRADED, DRAINING, OTHER, KINDS
};
static const char *const kind_names[KINDS] = {
    "",  "replay_complete", "state_resync_required", "slow_client_warning", "client_evicted",
    "stream_error", "log_degraded", "server_draining", "other"};

struct hole { uint64_t from, to; };  /* counters not seen yet, both ends included */

struct conn {
  int fd;
  enum state state;
  enum framing framing;
  size_t chunk_left;
  bool chunk_size_seen;
  char *carry;
  size_t carried, carry_room;
  uint64_t last_id, n, ts;
  bool has_n;
  size_t n_offset;
  enum kind kind;
  struct hole *holes;
  size_t hole_count;
};

static struct conn *conns;
static uint64_t *progress; /* highest counter of each connection, apart from conns so that a scan is short */
static size_t reader_count, session_count, opened, opening, ready, closed, complete, aborted;
static uint64_t expected;
static const char *host = "127.0.0.1", *prefix = "bench-", *path = "/session/%s/events", *cursor, *type = "t";
static int port, epoll_fd;
static uint64_t events, lost, duplicated, reordered, id_disorder, comments, bytes_read, refused;
static uint64_t kinds[KINDS], first_ns, last_ns, now_ns;
static char samples[SAMPLES][SAMPLE_BYTES];
static size_t sample_count;
static _Atomic uint64_t *shared_progress;

/* Delays in microseconds, log-linear: 64 steps for each power of two, error under 1.6 %. */
enum { STEPS = 64, BUCKETS = 40 * STEPS };
static uint64_t delays[BUCKETS], delay_count, delay_max;

static uint64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(2);
}

static void record_delay(uint64_t us) {
  size_t index = us;
  if (us >= STEPS) {
    int shift = 63 - __builtin_clzll(us) - 6;
    index = (size_t)(shift + 1) * STEPS + ((us >> shift) - STEPS);
  }
  delays[index < BUCKETS ? index : BUCKETS - 1]++;
  delay_count++;
  if (us > delay_max) delay_max = us;
}

static double delay_ms(double quantile) {
  uint64_t wanted = (uint64_t)(quantile * (double)delay_count), seen = 0;
  for (size_t i = 0; i < BUCKETS; i++) {
    seen += delays[i];
    if (delays[i] && seen >= wanted) {
      if (i < STEPS) return (double)i / 1000;
      size_t shift = i / STEPS - 1;
      return (double)((STEPS + i % STEPS + 1) << shift) / 1000;
    }
  }
  return 0;
}

static void add_hole(struct conn *c, uint64_t from, uint64_t to) {
  c->holes = realloc(c->holes, (c->hole_count + 1) * sizeof *c->holes);
  if (!c->holes) die("realloc");
  c->holes[c->hole_count++] = (struct hole){from, to};
  lost += to - from + 1;
}

/* A counter below the highest one: late when it fills a hole, otherwise seen before. */
static void count_backward(struct conn *c, uint64_t n) {
  for (size_t i = 0; i < c->hole_count; i++) {
    struct hole h = c->holes[i];
    if (n < h.from || n > h.to) continue;
    lost -= h.to - h.from + 1;
    c->holes[i] = c->holes[--c->hole_count];
    if (n > h.from) add_hole(c, h.from, n - 1);
    if (n < h.to) add_hole(c, n + 1, h.to);
    reordered++;
    return;
  }
  duplicated++;
}

static void count_event(struct conn *c) {
  uint64_t *last = &progress[c - conns];
  events++;
  if (c->n > *last) {
    if (c->n != *last + 1) add_hole(c, *last + 1, c->n - 1);
    if (expected && *last < expected && c->n >= expected) complete++;
    *last = c->n;
  } else {
    count_backward(c, c->n);
  }
  record_delay(now_ns > c->ts ? (now_ns - c->ts) / 1000 : 0);
}

static const char *number(const char *at, const char *end, uint64_t *value) {
  uint64_t v = 0;
  while (at < end && *at >= '0' && *at <= '9') v = v * 10 + (uint64_t)(*at++ - '0');
  *value = v;
  return at;
}

/* "n" stands at the same offset in nearly every event of a connection: look there first. */
static void parse_data(struct conn *c, const char *line, size_t size) {
  const char *end = line + size, *at = line + c->n_offset;
  if (!c->n_offset || at + 4 > end || memcmp(at, "\"n\":", 4)) at = memmem(line, size, "\"n\":", 4);
  if (!at) return;
  c->n_offset = (size_t)(at - line);
  at = number(at + 4, end, &c->n);
  if (end - at < 6 || memcmp(at, ",\"ts\":", 6)) return;
  number(at + 6, end, &c->ts);
  c->has_n = true;
}

static void keep_sample(const char *line, size_t size) {
  if (sample_count == SAMPLES) return;
  if (size >= SAMPLE_BYTES) size = SAMPLE_BYTES - 1;
  char *to = samples[sample_count++];
  for (size_t i = 0; i < size; i++) to[i] = line[i] == '"' || line[i] == '\\' || line[i] < 32 ? '\'' : line[i];
}

static enum kind kind_of(const char *name, size_t size) {
  if (size == strlen(type) && !memcmp(name, type, size)) return MESSAGE;
  for (int k = COMPLETE; k < OTHER; k++)
    if (size == strlen(kind_names[k]) && !memcmp(name, kind_names[k], size)) return (enum kind)k;
  return OTHER;
}

static void take_line(struct conn *c, const char *line, size_t size) {
  if (!size) {
    if (c->kind != MESSAGE) kinds[c->kind]++;
    else if (c->has_n) count_event(c);
    c->has_n = false;
    c->kind = MESSAGE;
  } else if (size > 6 && !memcmp(line, "data: ", 6)) {
    if (c->kind == MESSAGE) parse_data(c, line, size);
    else if (c->kind != COMPLETE) keep_sample(line, size);
  } else if (size > 4 && !memcmp(line, "id: ", 4)) {
    uint64_t id;
    number(line + 4, line + size, &id);
    if (id <= c->last_id) id_disorder++;
    c->last_id = id;
  } else if (size > 7 && !memcmp(line, "event: ", 7)) {
    c->kind = kind_of(line + 7, size - 7);
  } else if (line[0] == ':') {
    comments++;
  }
}

static void carry(struct conn *c, const char *data, size_t size) {
  if (c->carried + size > c->carry_room) {
    c->carry_room = (c->carried + size) * 2;
    c->carry = realloc(c->carry, c->carry_room);
    if (!c->carry) die("realloc");
  }
  memcpy(c->carry + c->carried, data, size);
  c->carried += size;
}

static void take_body(struct conn *c, const char *data, size_t size) {
  const char *end = data + size;
  while (data < end) {
    const char *newline = memchr(data, '\n', (size_t)(end - data));
    if (!newline) {
      carry(c, data, (size_t)(end - data));
      return;
    }
    if (c->carried) {
      carry(c, data, (size_t)(newline - data));
      take_line(c, c->carry, c->carried);
      c->carried = 0;
    } else {
      take_line(c, data, (size_t)(newline - data));
    }
    data = newline + 1;
  }
}

static int hex(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  digit |= 0x20;
  return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Strip chunked transfer coding; sizes may be cut anywhere by a read. */
static void take_framed(struct conn *c, const char *data, size_t size) {
  const char *end = data + size;
  while (data < end) {
    if (c->framing == UNFRAMED) {
      take_body(c, data, (size_t)(end - data));
      return;
    }
    if (c->framing == CHUNK) {
      size_t take = c->chunk_left < (size_t)(end - data) ? c->chunk_left : (size_t)(end - data);
      take_body(c, data, take);
      data += take;
      c->chunk_left -= take;
      if (!c->chunk_left) c->framing = CHUNK_END;
    } else if (c->framing == CHUNK_END) {
      if (*data++ == '\n') c->framing = SIZE_LINE;
    } else if (c->framing == SIZE_LINE) {
      char b = *data++;
      if (b == '\n' && c->chunk_size_seen) {
        c->framing = c->chunk_left ? CHUNK : BODY_END;
        c->chunk_size_seen = false;
      } else if (hex(b) >= 0) {
        c->chunk_left = c->chunk_left * 16 + (size_t)hex(b);
        c->chunk_size_seen = true;
      }
    } else {
      return;
    }
  }
}

static void close_conn(struct conn *c) {
  if (c->state == CONNECTING || c->state == HEAD) opening--;
  if (c->state == BODY && c->framing != BODY_END) aborted++;
  if (expected && progress[c - conns] >= expected) complete--; /* counted as closed instead */
  close(c->fd);
  c->state = CLOSED;
  closed++;
}

static void take_head(struct conn *c, const char *data, size_t size) {
  carry(c, data, size);
  char *end = memmem(c->carry, c->carried, "\r\n\r\n", 4);
  if (!end) {
    if (c->carried > HEAD_BYTES) close_conn(c);
    return;
  }
  *end = 0;
  if (c->carried < 12 || memcmp(c->carry + 8, " 200", 4)) {
    refused++;
    keep_sample(c->carry, strlen(c->carry));
    close_conn(c);
    return;
  }
  c->framing = strcasestr(c->carry, "\r\ntransfer-encoding: chunked") ? SIZE_LINE : UNFRAMED;
  c->state = BODY;
  opening--;
  ready++;
  size_t skip = (size_t)(end + 4 - c->carry), rest = c->carried - skip;
  char *body = malloc(rest + 1);
  if (!body) die("malloc");
  memcpy(body, end + 4, rest);
  c->carried = 0;
  take_framed(c, body, rest);
  free(body);
}

static void read_conn(struct conn *c) {
  static char buffer[READ_BYTES];
  ssize_t got = read(c->fd, buffer, sizeof buffer);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    close_conn(c);
    return;
  }
  now_ns = clock_ns();
  bytes_read += (uint64_t)got;
  uint64_t before = events;
  if (c->state == HEAD) take_head(c, buffer, (size_t)got);
  else take_framed(c, buffer, (size_t)got);
  if (events != before) {
    if (!first_ns) first_ns = now_ns;
    last_ns = now_ns;
  }
  if (c->state == BODY && c->framing == BODY_END) close_conn(c);
}

static void send_request(struct conn *c) {
  char name[160], where[400], request[900];
  snprintf(name, sizeof name, "%s%zu", prefix, (size_t)(c - conns) % session_count);
  snprintf(where, sizeof where, path, name);
  int size = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: %s:%d\r\nAccept: text/event-stream\r\n%s%s%s\r\n",
                      where, host, port, cursor ? "Last-Event-ID: " : "", cursor ? cursor : "", cursor ? "\r\n" : "");
  if (write(c->fd, request, (size_t)size) != size) {
    close_conn(c);
    return;
  }
  c->state = HEAD;
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e)) die("epoll_ctl");
}

static void open_conn(struct conn *c) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  inet_pton(AF_INET, host, &to.sin_addr);
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) die("socket");
  int one = 1;
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  c->state = CONNECTING;
  opening++;
  opened++;
  if (connect(c->fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) die("connect");
  struct epoll_event e = {.events = EPOLLOUT, .data.ptr = c};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &e)) die("epoll_ctl");
}

static void expect(uint64_t count) {
  expected = count;
  complete = 0;
  for (size_t i = 0; i < reader_count; i++)
    if (conns[i].state != CLOSED && progress[i] >= expected) complete++;
}

static void publish_progress(void) {
  uint64_t least = UINT64_MAX;
  for (size_t i = 0; i < reader_count; i++)
    if (progress[i] < least) least = progress[i];
  atomic_store_explicit(shared_progress, least, memory_order_release);
}

static void map_progress(const char *name) {
  int fd = open(name, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, 8)) die(name);
  shared_progress = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (shared_progress == MAP_FAILED) die("mmap");
  close(fd);
}

static void report(uint64_t start_ns) {
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  uint64_t missing = 0, incomplete = 0;
  for (size_t i = 0; i < reader_count; i++)
    if (expected > progress[i]) {
      missing += expected - progress[i];
      incomplete++;
    }
  printf("{\"readers\":%zu,\"ready\":%zu,\"refused\":%" PRIu64 ",\"closed\":%zu,\"aborted\":%zu,\"incomplete\":%" PRIu64
         ",\"events\":%" PRIu64 ",\"lost\":%" PRIu64 ",\"duplicated\":%" PRIu64 ",\"reordered\":%" PRIu64
         ",\"id_disorder\":%" PRIu64 ",\"comments\":%" PRIu64 ",\"bytes\":%" PRIu64,
         reader_count, ready, refused, closed, aborted, incomplete, events, lost + missing, duplicated, reordered,
         id_disorder, comments, bytes_read);
  printf(",\"span_s\":%.6f,\"complete_s\":%.6f,\"cpu_s\":%.3f", (double)(last_ns - first_ns) / 1e9,
         last_ns ? (double)(last_ns - start_ns) / 1e9 : 0.0,
         (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
             (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
  printf(",\"p50_ms\":%.3f,\"p90_ms\":%.3f,\"p99_ms\":%.3f,\"p999_ms\":%.3f,\"max_ms\":%.3f,\"frames\":{",
         delay_ms(.5), delay_ms(.9), delay_ms(.99), delay_ms(.999), (double)delay_max / 1000);
  for (int k = COMPLETE; k < KINDS; k++)
    printf("%s\"%s\":%" PRIu64, k == COMPLETE ? "" : ",", kind_names[k], kinds[k]);
  printf("},\"samples\":[");
  for (size_t i = 0; i < sample_count; i++) printf("%s\"%s\"", i ? "," : "", samples[i]);
  printf("]}\n");
  fflush(stdout);
}

/* Returns false when the run is to end at once. */
static bool command(uint64_t *deadline_ns) {
  static char line[256];
  static size_t held;
  ssize_t got = read(0, line + held, sizeof line - held - 1);
  if (got <= 0) return false;
  held += (size_t)got;
  line[held] = 0;
  if (!memchr(line, '\n', held)) return true;
  held = 0;
  uint64_t count;
  double seconds;
  if (sscanf(line, "expect %" SCNu64 " %lf", &count, &seconds) != 2) return false;
  expect(count);
  *deadline_ns = clock_ns() + (uint64_t)(seconds * 1e9);
  return true;
}

static void run(double limit_s) {
  uint64_t start_ns = clock_ns(), deadline_ns = limit_s > 0 ? start_ns + (uint64_t)(limit_s * 1e9) : UINT64_MAX;
  bool announced = false, going = true;
  static struct epoll_event got[MOST];
  while (going && clock_ns() < deadline_ns && closed < reader_count) {
    while (opened < reader_count && opening < MAX_OPENING) open_conn(&conns[opened]);
    if (announced) nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
    int count = epoll_wait(epoll_fd, got, MOST, announced ? 0 : 50);
    for (int i = 0; i < count; i++) {
      struct conn *c = got[i].data.ptr;
      if (!c) going = command(&deadline_ns);
      else if (c->state == CONNECTING) send_request(c);
      else if (c->state != CLOSED) read_conn(c);
    }
    if (shared_progress && count) publish_progress();
    if (!announced && ready + closed >= reader_count) {
      announced = true;
      printf("{\"ready\":%zu,\"seconds\":%.3f}\n", ready, (double)(clock_ns() - start_ns) / 1e9);
      fflush(stdout);
    }
    if (expected && complete + closed >= reader_count) going = false;
  }
  report(start_ns);
}

int main(int argc, char **argv) {
  double limit_s = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (!strcmp(name, "--port")) port = atoi(value);
    else if (!strcmp(name, "--readers")) reader_count = strtoul(value, NULL, 10);
    else if (!strcmp(name, "--sessions")) session_count = strtoul(value, NULL, 10);
    else if (!strcmp(name, "--prefix")) prefix = value;
    else if (!strcmp(name, "--path")) path = value;
    else if (!strcmp(name, "--cursor")) cursor = value;
    else if (!strcmp(name, "--events")) expected = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--limit")) limit_s = atof(value);
    else if (!strcmp(name, "--progress")) map_progress(value);
    else if (!strcmp(name, "--type")) type = value;
    else {
      fprintf(stderr, "unknown option %s\n", name);
      return 2;
    }
  }
  if (!port || !reader_count || !session_count) {
    fprintf(stderr, "--port, --readers and --sessions are required\n");
    return 2;
  }
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  conns = calloc(reader_count, sizeof *conns);
  progress = calloc(reader_count, sizeof *progress);
  epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  if (!conns || !progress || epoll_fd < 0) die("start");
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
  if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &e)) die("epoll_ctl stdin");
  run(limit_s);
  return 0;
}
