/* Which cards the program has, and which of them it wants to see.
 *
 * What its environment says when the library is loaded, or a file that it names, are
 * its slices, one for each card. A program, or who starts it, may ask for fewer: by CUDA_VISIBLE_DEVICES
 * it names cards as the machine numbers them, or by their UUID, or, as scripts do
 * that know of no machine, by their places among its own. */
#define _GNU_SOURCE
#include "cuda.h"
#include "../src/given.h"
#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST = YC_CARDS * 48, NAME = 48 };

static const char visible[] = "CUDA_VISIBLE_DEVICES";

/* The cards, in the order of the slices: their UUIDs, and what they are in the list
 * that the program was given. */
static struct {
  yc_slice slice;
  char uuid[NAME], number[NAME];
} has[YC_CARDS];
static int has_n;
static char given[LIST];

/* The driver's start, at which it looks what it shall show. */
static struct {
  pthread_mutex_t lock;
  bool over;    /* it has started, and looks no more */
  bool changed; /* the program's list is another, or was none: NULL */
  char *was;
  int shown[YC_CARDS], n;
} starts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* entry copies the next of a list that commas divide; false: there is none, or it is too long. */
static bool entry(const char **list, char to[NAME]) {
  while (isspace((unsigned char)**list)) ++*list;
  size_t n = strcspn(*list, ",");
  if (!n || n >= NAME) return false;
  memcpy(to, *list, n), to[n] = 0;
  *list += n + ((*list)[n] == ',');
  for (char *end = to + n; end > to && isspace((unsigned char)end[-1]);) *--end = 0;
  return true;
}

/* lists has a program that others start find its cards as those that pool run starts do, and so
 * have the programs that it starts: these read the file as it is then, and what was taken from
 * one before is not their own list. */
static void lists(void) {
  static const char taken[] = "YUNHE_POOL_LISTED", order[] = "CUDA_DEVICE_ORDER";
  const char *cards = yp_given(visible), *how = yp_given(order), *own = getenv(visible), *before = getenv(taken);
  if (cards && (!own || (before && !strcmp(own, before)))) setenv(visible, cards, 1), setenv(taken, cards, 1);
  if (how) setenv(order, how, 0);
}

void yc_read(void) {
  for (int i = 0; i < YC_CARDS; i++) {
    yc_slice *s = &has[i].slice;
    const char *a = yp_setting_of("YUNHE_POOL_ADDRESS", i), *t = yp_setting_of("YUNHE_POOL_TASK", i), *k = yp_setting_of("YUNHE_POOL_TOKEN", i);
    if (!a || !t || !k || strlen(a) >= sizeof s->address || strlen(t) != sizeof s->task - 1 || strlen(k) != sizeof s->token - 1) break;
    strcpy(s->address, a), strcpy(s->task, t), strcpy(s->token, k);
    has_n = starts.n = i + 1;
    starts.shown[i] = i;
  }
  if (has_n) lists();
  /* Where the program's list has cards' numbers, as some programs read it so, UUIDs are beside it. */
  const char *own = getenv(visible), *uuids = yp_setting("YUNHE_POOL_CARD"), *numbers = yp_setting("YUNHE_POOL_VISIBLE");
  if (!uuids) uuids = own;
  if (!numbers) numbers = own;
  if (numbers && strlen(numbers) < sizeof given) strcpy(given, numbers);
  for (int i = 0; i < has_n && uuids && entry(&uuids, has[i].uuid); i++) {}
  for (int i = 0; i < has_n && numbers && entry(&numbers, has[i].number); i++) {}
  if (has_n && !*has[has_n - 1].uuid) *has[0].uuid = 0; /* the driver shows all there is */
}

const yc_slice *yc_slice_of(int card) { return card < has_n ? &has[card].slice : NULL; }

int yc_shown_cards(const int **cards) {
  *cards = starts.shown;
  return starts.n;
}

/* among finds the card that a name of a list means; -1: none. */
static int among(const char *name) {
  for (int i = 0; i < has_n; i++)
    if (!strcmp(name, has[i].number) || (strlen(name) > 4 && !strncmp(name, has[i].uuid, strlen(name)))) return i;
  return -1;
}

/* placed is that of a name that is a place among them. */
static int placed(const char *name) {
  char *end;
  long n = strtol(name, &end, 10);
  return end == name || *end || n < 0 || n >= has_n ? -1 : (int)n;
}

/* reads reads a list as far as it has a meaning, as the driver does, and says whether that is all of it. */
static bool reads(const char *list, int (*means)(const char *), int to[YC_CARDS], int *n) {
  bool seen[YC_CARDS] = {false};
  char name[NAME];
  for (*n = 0; entry(&list, name); ++*n) {
    int i = means(name);
    if (i < 0 || seen[i]) return false;
    seen[i] = true, to[*n] = i;
  }
  return !*list;
}

/* wanted reads a program's list: as names, unless it is places from its beginning to its end,
 * and names are not. One that names none of its cards has others' numbers, and shows all. */
static void wanted(const char *list) {
  int names[YC_CARDS], places[YC_CARDS], names_n, places_n;
  bool named = reads(list, among, names, &names_n), all = reads(list, placed, places, &places_n);
  bool by_name = named || (names_n && !all);
  starts.n = by_name ? names_n : places_n ? places_n : has_n;
  for (int i = 0; i < starts.n; i++) starts.shown[i] = by_name ? names[i] : places_n ? places[i] : i;
}

void yc_show(void) {
  yc_start();
  yc_stay();
  pthread_mutex_lock(&starts.lock);
  const char *devices = getenv(visible);
  bool none = devices && !isdigit((unsigned char)*devices) && strncmp(devices, "GPU-", 4) && strncmp(devices, "MIG-", 4);
  if (starts.over || !*has[0].uuid || none) return;
  wanted(devices ? devices : given);
  char list[LIST] = "";
  for (int i = 0; i < starts.n; i++) {
    if (i) strcat(list, ",");
    strcat(list, has[starts.shown[i]].uuid);
  }
  if (devices && !strcmp(devices, list)) return;
  starts.was = devices ? strdup(devices) : NULL;
  starts.changed = !setenv(visible, list, 1) && (starts.was || !devices);
}

void yc_shown(bool started) {
  if (starts.changed && starts.was) setenv(visible, starts.was, 1);
  else if (starts.changed) unsetenv(visible);
  free(starts.was);
  starts.was = NULL, starts.changed = false, starts.over |= started;
  pthread_mutex_unlock(&starts.lock);
  yc_go();
}

void yc_shown_in_child(void) { pthread_mutex_init(&starts.lock, NULL); }
