/* Load publisher: appends events straight to JetStream over one connection, pipelined and acknowledged.
 *
 * Usage: publisher --port P --subject "ringmere.events.0." --sessions K --prefix S
 *                  [--rate R] [--seconds T] [--rounds N] [--bytes B] [--inflight A] [--window W --progress FILE]
 *
 * Events go round-robin to the subjects "<subject><prefix><0…K-1>", each with a counter "n" of its session and
 * a time "ts" (CLOCK_MONOTONIC, ns). Whole rounds only, so every session ends with the same counter. --rate is
 * events a second over all sessions (0: as fast as the rest allows), --inflight bounds unacknowledged
 * publishes, --window bounds how far a session is ahead of the slowest reader (its counter is in FILE).
 * One line of JSON on stdout at the end; exit 1 if the log refused an event or did not answer.
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
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { OUT_BYTES = 128 * 1024, IN_BYTES = 256 * 1024, TICK_NS = 500000, LATE_NS = 5000000 };
#define REPLY "_INBOX.bench"

static int fd;
static char out[OUT_BYTES + 4096], in[IN_BYTES];
static size_t out_size, out_sent, in_size;
static uint64_t acked, errors;
static bool first_error_shown;

struct subject { char head[256]; size_t size; };
static struct subject *subjects;
static char *pad;

static uint64_t clock_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what) {
  perror(what);
  exit(2);
}

static char *put_number(char *to, uint64_t value) {
  char digits[24];
  int count = 0;
  do digits[count++] = (char)('0' + value % 10);
  while (value /= 10);
  while (count) *to++ = digits[--count];
  return to;
}

static void put_event(const struct subject *subject, uint64_t n, uint64_t ts, size_t size) {
  char *at = out + out_size;
  memcpy(at, subject->head, subject->size);
  char *start = at + subject->size;
  at = stpcpy(start, "{\"type\":\"t\",\"data\":{\"n\":");
  at = put_number(at, n);
  at = stpcpy(at, ",\"ts\":");
  at = put_number(at, ts);
  at = stpcpy(at, ",\"pad\":\"");
  size_t rest = size - (size_t)(at - start) - 3;
  memcpy(at, pad, rest);
  at = stpcpy(at + rest, "\"}}\r\n");
  out_size = (size_t)(at - out);
}

static void flush_out(void) {
  while (out_sent < out_size) {
    ssize_t sent = write(fd, out + out_sent, out_size - out_sent);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) die("write");
    out_sent += (size_t)sent;
  }
  out_size = out_sent = 0;
}

static void take_ack(const char *payload, size_t size) {
  acked++;
  if (!memmem(payload, size, "\"error\"", 7)) return;
  errors++;
  if (!first_error_shown) fprintf(stderr, "publish refused: %.*s\n", (int)size, payload);
  first_error_shown = true;
}

/* Parse what is complete: MSG with its payload, PING, anything else is one line. */
static void take_in(void) {
  char *at = in, *end = in + in_size;
  while (at < end) {
    char *line_end = memchr(at, '\n', (size_t)(end - at));
    if (!line_end) break;
    if (!memcmp(at, "MSG ", 4)) {
      char *digits = line_end - 1;
      while (digits[-1] != ' ') digits--;
      size_t size = strtoul(digits, NULL, 10);
      if ((size_t)(end - line_end) < size + 3) break;
      take_ack(line_end + 1, size);
      at = line_end + 1 + size + 2;
      continue;
    }
    if (!memcmp(at, "PING", 4)) {
      memcpy(out + out_size, "PONG\r\n", 6);
      out_size += 6;
    } else if (!memcmp(at, "-ERR", 4)) {
      fprintf(stderr, "%.*s\n", (int)(line_end - at), at);
      exit(2);
    }
    at = line_end + 1;
  }
  in_size = (size_t)(end - at);
  memmove(in, at, in_size);
}

static void read_in(void) {
  for (;;) {
    ssize_t got = read(fd, in + in_size, sizeof in - in_size);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) die("read");
    in_size += (size_t)got;
    bool full = in_size == sizeof in;
    take_in();
    if (!full) return;
  }
}

/* Sleep without listening: a wake-up for every acknowledgement would be paid by everybody on the machine. */
static void pause_for(uint64_t ns) {
  nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
  read_in();
}

static void connect_to(int port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) die("connect");
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  const char *hello = "CONNECT {\"verbose\":false,\"pedantic\":false,\"name\":\"bench-publisher\",\"lang\":\"c\"}\r\n"
                      "SUB " REPLY " 1\r\n";
  if (write(fd, hello, strlen(hello)) != (ssize_t)strlen(hello)) die("write");
  fcntl(fd, F_SETFL, O_NONBLOCK);
}

int main(int argc, char **argv) {
  int port = 0;
  const char *subject = "", *prefix = "bench-";
  size_t sessions = 1, bytes = 200;
  double rate = 0, seconds = 0;
  uint64_t rounds = UINT64_MAX, inflight = 4000, window = 0;
  _Atomic uint64_t *progress = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (!strcmp(name, "--port")) port = atoi(value);
    else if (!strcmp(name, "--subject")) subject = value;
    else if (!strcmp(name, "--sessions")) sessions = strtoul(value, NULL, 10);
    else if (!strcmp(name, "--prefix")) prefix = value;
    else if (!strcmp(name, "--rate")) rate = atof(value);
    else if (!strcmp(name, "--seconds")) seconds = atof(value);
    else if (!strcmp(name, "--rounds")) rounds = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--bytes")) bytes = strtoul(value, NULL, 10);
    else if (!strcmp(name, "--inflight")) inflight = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--window")) window = strtoull(value, NULL, 10);
    else if (!strcmp(name, "--progress")) {
      int file = open(value, O_RDONLY);
      if (file < 0) die(value);
      progress = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
      if (progress == MAP_FAILED) die("mmap");
    } else {
      fprintf(stderr, "unknown option %s\n", name);
      return 2;
    }
  }
  if (!port || bytes < 100 || bytes > 2048 || (!seconds && rounds == UINT64_MAX)) {
    fprintf(stderr, "--port and --seconds or --rounds are required; --bytes is 100..2048\n");
    return 2;
  }
  pad = malloc(bytes);
  memset(pad, 'x', bytes);
  subjects = calloc(sessions, sizeof *subjects);
  for (size_t i = 0; i < sessions; i++)
    subjects[i].size = (size_t)snprintf(subjects[i].head, sizeof subjects[i].head, "PUB %s%s%zu " REPLY " %zu\r\n",
                                        subject, prefix, i, bytes);
  connect_to(port);

  uint64_t start = clock_ns(), stop = seconds ? start + (uint64_t)(seconds * 1e9) : UINT64_MAX;
  uint64_t sent = 0, round = 1, worst_late = 0, now;
  size_t next = 0;
  double gap_ns = rate > 0 ? 1e9 / rate : 0;
  for (;;) {
    now = clock_ns();
    if (next == 0 && (now >= stop || round > rounds)) break;
    uint64_t ahead_of = progress ? atomic_load_explicit(progress, memory_order_acquire) : 0;
    bool blocked = false;
    while (out_size < OUT_BYTES && (next || round <= rounds)) {
      uint64_t due = start + (uint64_t)(gap_ns * (double)sent);
      if ((rate > 0 && due > now) || (next == 0 && due >= stop)) break;
      if (sent - acked >= inflight || (window && round > ahead_of + window)) {
        blocked = true;
        break;
      }
      uint64_t late = rate > 0 ? now - due : 0;
      if (late > worst_late) worst_late = late;
      /* A publisher that was held up must not hide the delay it would have measured. */
      put_event(&subjects[next], round, late > LATE_NS ? due : now, bytes);
      sent++;
      if (++next == sessions) next = 0, round++;
    }
    flush_out();
    read_in();
    if (blocked || rate > 0 || out_size) {
      uint64_t due = start + (uint64_t)(gap_ns * (double)sent), wait = blocked || out_size ? TICK_NS / 5 : TICK_NS;
      now = clock_ns();
      if (rate > 0 && due > now + wait) wait = due - now < 20000000 ? due - now : 20000000;
      pause_for(wait);
    }
  }
  double span = (double)(clock_ns() - start) / 1e9;
  uint64_t patience = clock_ns() + 10000000000u;
  while ((acked < sent || out_size) && clock_ns() < patience) {
    flush_out();
    pause_for(1000000);
  }
  struct rusage use;
  getrusage(RUSAGE_SELF, &use);
  printf("{\"sent\":%" PRIu64 ",\"acked\":%" PRIu64 ",\"errors\":%" PRIu64 ",\"rounds\":%" PRIu64
         ",\"seconds\":%.6f,\"rate\":%.1f,\"worst_late_ms\":%.3f,\"cpu_s\":%.3f}\n",
         sent, acked, errors, round - 1, span, (double)sent / span, (double)worst_late / 1e6,
         (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
             (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
  return acked == sent && !errors ? 0 : 1;
}
